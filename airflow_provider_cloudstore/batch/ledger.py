"""Decides which URLs need a request, and records the outcome of each, in this try and earlier ones.

A URL is *settled* when it needs no more requests: it was queued, or may have been. The manifest is read twice: first all of it is
counted against what earlier tries settled, then what is left is sent.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import KEY_SIZE, KeyTable, Status, digest_of
from airflow_provider_cloudstore.batch.receipts import to_line
from airflow_provider_cloudstore.batch.state import Positions
from airflow_provider_cloudstore.protocol.secrets import Secret, redact_url

FAILURES_REPORTED = 20
_SINCE_EARLIER = "unknown since an earlier try"

# What the table says of a URL. Earlier tries settled it, and it has not been counted yet:
_QUEUED_BEFORE, _UNKNOWN_BEFORE = 1, 2
# It was counted, and needs a request; the second kind may have been queued:
_NEW, _AGAIN = 3, 4
# It has its request, or failed; it is settled:
_SENDING, _QUEUED, _UNKNOWN = 5, 6, 7


@dataclass(frozen=True, slots=True)
class Located:
    """An entry of the manifest, or of the shard.

    :param position: counted from 0, without blank lines and comments.
    :param digest: of the URL; of the line's number if it has none.
    """

    position: int
    entry: Entry
    digest: bytes = field(repr=False)
    may_be_queued: bool = False
    """Whether an earlier try may have queued it."""


def locate(entries: Iterable[Entry], shard: tuple[int, int] | None) -> Iterator[Located]:
    """The entries of one shard with their digests. The same URL is always in the same shard.

    :param shard: ``(k, n)``, with k counted from 0; None for the whole manifest.
    """
    position = 0
    for entry in entries:
        digest = digest_of(f"line {entry.line}" if entry.problem else str(entry.url))
        if shard is None or int.from_bytes(digest[-8:]) % shard[1] == shard[0]:
            yield Located(position, entry, digest)
            position += 1


class Ledger:
    """The outcomes of a batch.

    :param positions: what earlier tries settled by position, if the state store keeps the progress.
    :param retry_unknown: resend uploads that an earlier try may have queued.
    :param writes_receipts: whether receipts are written; otherwise responses need not be kept.
    :param try_number: the try, for the receipts.
    :param secrets: what receipts must not hold, such as the access token.
    """

    def __init__(
        self,
        positions: Positions | None = None,
        *,
        retry_unknown: bool = False,
        writes_receipts: bool = False,
        try_number: int = 1,
        secrets: Callable[[], tuple[Secret, ...]] = tuple,
    ) -> None:
        self.writes_receipts = writes_receipts
        self._positions = positions
        self._retry_unknown = retry_unknown
        self._try = try_number
        self._secrets = secrets
        self._table = KeyTable()
        self._lines: list[str] = []
        self.total = 0
        """Entries of the manifest."""
        self.again: deque[Located] = deque()
        """Entries to send once more: uploads that failed while the service did."""
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
        return sum(self.now.values()) + sum(self.earlier.values())

    # Before anything is sent.

    def note_earlier(self, digest: bytes, status: Status) -> None:
        """Note the outcome of a URL in an earlier try, in any order; a failed URL is not settled."""
        key = digest[:KEY_SIZE]
        if status is Status.QUEUED:
            self._table.set(key, _QUEUED_BEFORE)
        elif status is Status.UNKNOWN and self._table.get(key) != _QUEUED_BEFORE:
            self._table.set(key, _UNKNOWN_BEFORE)

    def survey(self, found: Located, before: Status | None = None) -> None:
        """Count an entry.

        :param before: the outcome in an earlier try, if it is known by position.
        """
        self.total += 1
        if found.entry.problem:
            return
        key = found.digest[:KEY_SIZE]
        known = self._table.get(key)
        if known > _UNKNOWN_BEFORE:
            self.now[Status.SKIPPED] += 1
        before = before or {_QUEUED_BEFORE: Status.QUEUED, _UNKNOWN_BEFORE: Status.UNKNOWN}.get(known)
        if before and known <= _NEW:
            self._count_earlier(found.entry, key, before)
        elif not known:
            self._table.set(key, _NEW)

    def _count_earlier(self, entry: Entry, key: bytes, status: Status) -> None:
        self.earlier[status] += 1
        if status is Status.QUEUED:
            self._table.set(key, _QUEUED)
        elif self._retry_unknown:
            self._table.set(key, _AGAIN)
        else:
            self._table.set(key, _UNKNOWN)
            self._add_failure(entry, status, redact_url(str(entry.url)), _SINCE_EARLIER)

    # While it is sent.

    def admit(self, found: Located) -> Located | None:
        """Admit the next entry, which has a URL, and return it if it needs a request."""
        key = found.digest[:KEY_SIZE]
        known = self._table.get(key)
        if known in (_NEW, _AGAIN):
            self._table.set(key, _SENDING)
            return found if known == _NEW else replace(found, may_be_queued=True)
        if known == _QUEUED and self._positions:
            self._positions.add(found.position, found.digest)  # a duplicate
        return None

    def record(
        self, sent: Located, status: Status, *, url: str = "", error: str = "", file_id: str = "", response: Any = None
    ) -> None:
        """Record the outcome of an entry.

        :param url: the URL, redacted.
        :param error: why it failed.
        :param file_id: the file's id, if the service returned one.
        :param response: the service's response.
        """
        if sent.may_be_queued:
            self.earlier[Status.UNKNOWN] -= 1
            status = Status.UNKNOWN if status is Status.FAILED else status
        self.now[status] += 1
        if status is not Status.FAILED:
            self._table.set(sent.digest[:KEY_SIZE], _QUEUED if status is Status.QUEUED else _UNKNOWN)
            if self._positions:
                self._positions.add(sent.position, sent.digest)
                self._positions.set_unknown(sent.position, status is Status.UNKNOWN)
        if error:
            self._add_failure(sent.entry, status, url, error)
        if self.writes_receipts:
            told: dict[str, Any] = {"url": url, "error": error, "file_id": file_id, "response": response}
            self._lines.append(to_line(sent.entry, sent.digest, status, self._try, **told, secrets=self._secrets()))

    def _add_failure(self, entry: Entry, status: Status, url: str, error: str) -> None:
        if len(self.failures) < FAILURES_REPORTED:
            self.failures.append({"line": entry.line, "url": url[:200], "status": status.value, "error": error[:400]})

    # What is stored.

    def drain_receipts(self) -> list[str]:
        """Remove and return the receipts since the last call; the caller has to write them."""
        lines, self._lines = self._lines, []
        return lines

    def copy_positions(self) -> Positions | None:
        """What is settled by position, as it is now; None if receipts hold the progress."""
        return self._positions.copy() if self._positions else None
