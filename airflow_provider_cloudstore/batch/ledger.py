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
_MAX_LENGTH = 16_000  # characters of an error or a response in a receipt
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode  # json.dumps would create an encoder for each line


class _State(Enum):
    """What is known of a URL."""

    QUEUED_EARLIER = auto()
    UNKNOWN_EARLIER = auto()
    TO_SEND = auto()
    """It is in the manifest, and needs a request."""
    TO_RESEND = auto()
    """The same, although an earlier try may have queued it."""
    SENT = auto()
    """It has its request, or needs none."""
    RESENT = auto()


class Ledger:
    """The outcomes of a batch.

    :param try_number: the try, for the receipts.
    :param retry_unknown: resend uploads that an earlier try may have queued.
    """

    def __init__(self, try_number: int = 1, *, retry_unknown: bool = False) -> None:
        self._try = try_number
        self._retry_unknown = retry_unknown
        self._states: dict[bytes, _State] = {}
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

    def count(self, status: Status) -> int:
        """URLs with a status, from this try and earlier ones."""
        if status is Status.UNSENT:
            return self.total - self.finished
        return self.now[status] + self.earlier[status]

    @property
    def finished(self) -> int:
        """Entries that have an outcome."""
        return self.now.total() + self.earlier.total()

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
                self._states[digest] = _State.TO_RESEND if self._retry_unknown else _State.SENT
                self.earlier[Status.UNKNOWN] += 1
                if not self._retry_unknown:
                    self._add_failure(entry, Status.UNKNOWN, redact_url(str(entry.url)), "unknown since an earlier try")
            case _:
                self.now[Status.SKIPPED] += 1

    # While it is sent.

    def admit(self, entry: Entry) -> bool:
        """Whether an entry is to be sent, or has no URL. It is called once for each entry."""
        if entry.problem:
            return True
        digest = entry.digest
        state = self._states[digest]
        if state in (_State.TO_SEND, _State.TO_RESEND):
            self._states[digest] = _State.SENT if state is _State.TO_SEND else _State.RESENT
            return True
        return False

    def record(
        self, entry: Entry, status: Status, *, url: str = "", error: str = "", file_id: str = "", response: Any = None
    ) -> None:
        """Record the outcome of an entry, with its redacted URL and the error, or the file's id and the service's response.

        Its receipt has at most 16 KiB besides the URL.
        """
        digest = entry.digest
        if self._states.get(digest) is _State.RESENT:
            self.earlier[Status.UNKNOWN] -= 1
            status = Status.UNKNOWN if status is Status.FAILED else status
        self.now[status] += 1
        receipt = {"line": entry.line, "digest": digest.hex(), "url": url, "status": status.value, "try": self._try}
        if status is Status.QUEUED:
            receipt["file_id"] = file_id
        if error:
            self._add_failure(entry, status, url, error)
            receipt["error"] = error[:_MAX_LENGTH]
        elif response is not None:
            receipt["response"] = response
        line = _to_json(receipt)
        if len(line) - len(url) > _MAX_LENGTH and "response" in receipt:
            line = _to_json({**receipt, "response": None})
        self._receipts.append(line)

    def drain_receipts(self) -> list[str]:
        """Remove and return the receipts since the last call, as JSON; the caller has to write them."""
        lines, self._receipts = self._receipts, []
        return lines

    def _add_failure(self, entry: Entry, status: Status, url: str, error: str) -> None:
        if len(self.failures) < FAILURES_REPORTED:
            url, error = (text.encode(errors="backslashreplace").decode() for text in (url[:200], error[:400]))  # for XCom
            self.failures.append({"line": entry.line, "url": url, "status": status.value, "error": error})
