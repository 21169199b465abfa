"""Decides which URLs need a request, records the outcome of each URL in this and earlier tries, and reports the outcomes.

The manifest is read twice: first, its URLs are counted by their outcome in earlier tries; then the remaining URLs are sent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.receipts import Status
from airflow_provider_cloudstore.exceptions import BatchFailedError, CloudStoreError
from airflow_provider_cloudstore.protocol.secrets import redact_url

FAILURES_REPORTED = 20
_CHECK_UNKNOWN = "Check in the service whether the unknown uploads arrived; retry_unknown_outcome=True resends them."
_to_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for each line


class Ledger:
    """The outcomes of a batch, and how its try ended.

    :param retry_unknown: resend uploads that an earlier try may have queued.
    """

    def __init__(self, try_number: int = 1, *, retry_unknown: bool = False) -> None:
        self._try = try_number
        self._retry_unknown = retry_unknown
        # By digest: QUEUED or UNKNOWN since an earlier try, UNSENT, or SKIPPED once this try has dealt with the URL.
        self._states: dict[bytes, Status] = {}
        self._resent: set[bytes] = set()  # sent again although an earlier try may have queued them
        self._receipts: list[str] = []
        self.total = 0
        """Entries of the manifest."""
        self.is_counted = False
        self.now: Counter[Status] = Counter()
        """Outcomes of this try."""
        self.earlier: Counter[Status] = Counter()
        """Outcomes of earlier tries."""
        self.failures: list[dict[str, Any]] = []
        """The first failures, redacted."""
        self.error: CloudStoreError | None = None
        """Why the try ended early, or which uploads the user has to check after its end."""

    @property
    def counts(self) -> dict[Status, int]:
        """The number of URLs by status, over this and earlier tries; the numbers add up to the total."""
        found = {status: self.now[status] + self.earlier[status] for status in Status}
        return {**found, Status.UNSENT: self.total - sum(found.values())}

    # Before anything is sent.

    def note_earlier(self, outcomes: Iterable[tuple[bytes, Status]]) -> None:
        """Note outcomes of earlier tries by digest, in any order; URLs that failed are sent again."""
        for digest, status in outcomes:
            if status is Status.QUEUED:
                self._states[digest] = status
            elif status is Status.UNKNOWN:
                self._states.setdefault(digest, status)

    def survey(self, entries: Iterable[Entry]) -> None:
        """Count the manifest's entries by their outcome in earlier tries."""
        for entry in entries:
            self.total += 1
            if not entry.problem:
                self._survey(entry, entry.digest)
        self.is_counted = True

    def _survey(self, entry: Entry, digest: bytes) -> None:
        known = self._states.get(digest)
        if known is None:
            self._states[digest] = Status.UNSENT
        elif known in (Status.UNSENT, Status.SKIPPED):
            self.now[Status.SKIPPED] += 1
        else:
            self.earlier[known] += 1
            self._states[digest] = Status.SKIPPED
            if known is Status.UNKNOWN and self._retry_unknown:
                self._states[digest] = Status.UNSENT
                self._resent.add(digest)
            elif known is Status.UNKNOWN:
                self._add_failure(entry, known, redact_url(str(entry.url)), "unknown since an earlier try")

    # While it is sent.

    def admit(self, entry: Entry) -> bool:
        """Return whether the entry has to be sent, or has no URL and has to be recorded. Call it once for each entry."""
        if entry.problem:
            return True
        digest = entry.digest
        is_first = self._states[digest] is Status.UNSENT
        self._states[digest] = Status.SKIPPED
        return is_first

    def record(
        self, entry: Entry, status: Status, *, url: str = "", error: str = "", file_id: str = "", response: Any = None
    ) -> None:
        """Record the outcome of an entry, with its redacted URL and the error, or the file's id and the service's response."""
        digest = entry.digest
        if digest in self._resent:
            self.earlier[Status.UNKNOWN] -= 1
            status = Status.UNKNOWN if status is Status.FAILED else status
        self.now[status] += 1
        receipt = {"line": entry.line, "digest": digest.hex(), "url": url, "status": status.value, "try": self._try}
        if status is Status.QUEUED:
            receipt["file_id"] = file_id
        if error:
            self._add_failure(entry, status, url, error)
            receipt["error"] = error
        elif response is not None:
            receipt["response"] = response
        self._receipts.append(_to_json(receipt))

    def drain_receipts(self) -> list[str]:
        """Remove and return the receipts since the last call, as JSON; the caller has to write them."""
        lines, self._receipts = self._receipts, []
        return lines

    def _add_failure(self, entry: Entry, status: Status, url: str, error: str) -> None:
        if len(self.failures) < FAILURES_REPORTED:
            url, error = (text.encode(errors="backslashreplace").decode() for text in (url[:200], error[:400]))  # for XCom
            self.failures.append({"line": entry.line, "url": url, "status": status.value, "error": error})

    # What the user is told.

    def close(self, error: CloudStoreError | None) -> None:
        """Set the try's error: ``error`` if it ended the try early, else a summary of the failed and unknown uploads, if any."""
        counts = self.counts
        bad = {status: counts[status] for status in (Status.FAILED, Status.UNKNOWN)}
        if error:
            error = replace(error, advice=f"{self.describe(counts)}. {error.advice}")
        elif any(bad.values()):
            first = self.failures[0]
            reason = f"{self.describe(bad)}; the first, in line {first['line']:,}: {first['error']}"
            parts = (BatchFailedError.default_advice if bad[Status.FAILED] else "", _CHECK_UNKNOWN if bad[Status.UNKNOWN] else "")
            error = BatchFailedError(reason, operation="batch upload", advice=" ".join(filter(None, parts)))
        self.error = error

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an XCom."""
        counts = {status.value: count for status, count in self.counts.items()}
        return {"total": self.total, **counts, "queued_earlier": self.earlier[Status.QUEUED], "failures": self.failures}

    def describe(self, counts: Mapping[Status, int]) -> str:
        """Return counts as text, leaving out zeros."""
        found = ", ".join(f"{count:,} {status.value}" for status, count in counts.items() if count)
        return f"{found or 'none sent'} of {self.total:,} URLs"
