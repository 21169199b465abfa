"""Decides which URLs need a request, and records the outcome of each, in this try and earlier ones.

The manifest is read twice: first all of it is counted against what earlier tries did, then what is left is sent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.protocol.secrets import redact_url

FAILURES_REPORTED = 20
_to_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for each line


class _State(Enum):
    """What is known of a URL."""

    QUEUED_EARLIER = auto()
    UNKNOWN_EARLIER = auto()
    TO_SEND = auto()
    """It is in the manifest, and needs a request."""
    SENT = auto()
    """It has its request, or needs none."""


class Ledger:
    """The outcomes of a batch.

    :param retry_unknown: resend uploads that an earlier try may have queued.
    """

    def __init__(self, try_number: int = 1, *, retry_unknown: bool = False) -> None:
        self._try = try_number
        self._retry_unknown = retry_unknown
        self._states: dict[bytes, _State] = {}
        self._resent: set[bytes] = set()  # which an earlier try may have queued
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

    @property
    def counts(self) -> dict[Status, int]:
        """URLs by status, from this try and earlier ones; they add up to the total."""
        found = {status: self.now[status] + self.earlier[status] for status in Status}
        return {**found, Status.UNSENT: self.total - sum(found.values())}

    # Before anything is sent.

    def note_earlier(self, outcomes: Iterable[tuple[bytes, Status]]) -> None:
        """Note outcomes of earlier tries by digest, in any order; what failed is sent again."""
        for digest, status in outcomes:
            if status is Status.QUEUED:
                self._states[digest] = _State.QUEUED_EARLIER
            elif status is Status.UNKNOWN:
                self._states.setdefault(digest, _State.UNKNOWN_EARLIER)

    def survey(self, entries: Iterable[Entry]) -> None:
        """Count the manifest."""
        for entry in entries:
            self.total += 1
            if not entry.problem:
                self._survey(entry, entry.digest)
        self.is_counted = True

    def _survey(self, entry: Entry, digest: bytes) -> None:
        match self._states.get(digest):
            case None:
                self._states[digest] = _State.TO_SEND
            case _State.QUEUED_EARLIER:
                self._states[digest] = _State.SENT
                self.earlier[Status.QUEUED] += 1
            case _State.UNKNOWN_EARLIER:
                self.earlier[Status.UNKNOWN] += 1
                if self._retry_unknown:
                    self._states[digest] = _State.TO_SEND
                    self._resent.add(digest)
                else:
                    self._states[digest] = _State.SENT
                    self._add_failure(entry, Status.UNKNOWN, redact_url(str(entry.url)), "unknown since an earlier try")
            case _:
                self.now[Status.SKIPPED] += 1

    # While it is sent.

    def admit(self, entry: Entry) -> bool:
        """Whether an entry is to be sent, or has no URL. It is called once for each entry."""
        if entry.problem:
            return True
        digest = entry.digest
        is_first = self._states[digest] is _State.TO_SEND
        self._states[digest] = _State.SENT
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
