"""Records the outcome of every URL: counted, found by later tries, and small enough to be stored every second.

An entry is *settled* when it needs no more requests: it was queued, may have been queued, or is a duplicate. A failed URL is not
settled, so every later try resends it. With receipts, a URL is found by its digest, wherever it is in the manifest; with the
state alone, by its position, if the digest of its segment of the manifest still matches.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_provider_cloudstore.batch.keys import KEY_SIZE, KeySet
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.protocol.encodings import hides_secret
from airflow_provider_cloudstore.protocol.errors import ManifestChangedError
from airflow_provider_cloudstore.protocol.secrets import MASK, Secret, redact_url, url_secrets

DAMAGES = (ValueError, TypeError, KeyError, RecursionError)
"""What parsing raises for receipts that are damaged."""
FAILURES_REPORTED = 20
CHUNK = 256
"""Entries that are read, and compared with the first pass, together."""
_DIGEST = hashlib.sha256().digest_size
_CHUNK_DIGEST = 8
STATE_FORMAT = 4
"""The format of the stored state."""
_SEGMENT_DIGEST = 6
# Characters: together with the rest of the state below the 64 KiB of Airflow's state store.
_MAX_SETTLED_SIZE = 36_000
_MAX_UNKNOWN_SIZE = 8_000
_MAX_FAILURES_SIZE = 4_000
_MAX_RESPONSE_SIZE = 16_000
_MAX_WAITING = 10_000
# json.dumps would create an encoder for each line.
_to_json = json.JSONEncoder(ensure_ascii=False).encode
_to_strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Status(Enum):
    """The outcome of a URL."""

    QUEUED = "queued"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


def digest_of(text: str) -> bytes:
    """The SHA-256 of a URL, exactly as in the manifest, in UTF-8: it joins receipts to a manifest and assigns URLs to shards."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def with_digests(entries: Iterable[Entry], shard: tuple[int, int] | None = None) -> Iterator[tuple[Entry, bytes]]:
    """The entries of one shard with their digests. The same URL is always in the same shard.

    :param shard: ``(k, n)``, with k counted from 0; None for the whole manifest.
    """
    for entry in entries:
        digest = digest_of(str(entry.url))
        if shard is None or int.from_bytes(digest[-8:]) % shard[1] == shard[0]:
            yield entry, digest


class ChunkDigests:
    """Digests of the first pass over a manifest, which stop the second pass at the first chunk that differs."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._total = 0

    def record(self, entries: Iterable[tuple[Entry, bytes]]) -> Iterator[tuple[Entry, bytes]]:
        """Record the first pass, and return its entries unchanged."""
        for chunk in _chunks_of(entries):
            self._digests += _digest_of_chunk(chunk)
            self._total += len(chunk)
            yield from chunk

    def verify(self, entries: Iterable[tuple[Entry, bytes]]) -> Iterator[tuple[Entry, bytes]]:
        """The entries of the second pass, up to the first chunk that differs.

        :raises ManifestChangedError: if the second pass differs from the first.
        """
        read, at = 0, 0
        for chunk in _chunks_of(entries):
            if self._digests[at : at + _CHUNK_DIGEST] != _digest_of_chunk(chunk):
                raise self._changed(read)
            at, read = at + _CHUNK_DIGEST, read + len(chunk)
            yield from chunk
        if read != self._total:
            raise self._changed(read)

    def _changed(self, read: int) -> ManifestChangedError:
        what = f"the manifest changed while it was read: of {self._total:,} URLs counted, those after the first {read:,} differ"
        return ManifestChangedError(what, operation="batch upload")


def _chunks_of(entries: Iterable[tuple[Entry, bytes]]) -> Iterator[list[tuple[Entry, bytes]]]:
    source = iter(entries)
    while chunk := list(itertools.islice(source, CHUNK)):
        yield chunk


def _digest_of_chunk(chunk: list[tuple[Entry, bytes]]) -> bytes:
    running = hashlib.blake2b(digest_size=_CHUNK_DIGEST)
    for entry, digest in chunk:
        running.update(digest)
        running.update(repr((entry.line, entry.problem, entry.key)).encode("utf-8", "surrogatepass"))
    return running.digest()


class Ranges:
    """A set of positions that are mostly consecutive."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        found = list(ranges)
        self._starts = [start for start, _ in found]
        self._ends = [end for _, end in found]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._starts, position) - 1
        return at >= 0 and position < self._ends[at]

    def add(self, position: int) -> None:
        """Add a position."""
        at = bisect_right(self._starts, position)
        if at and position < self._ends[at - 1]:
            return
        joins_before = at > 0 and self._ends[at - 1] == position
        joins_after = at < len(self._starts) and self._starts[at] == position + 1
        if joins_before and joins_after:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_before:
            self._ends[at - 1] += 1
        elif joins_after:
            self._starts[at] -= 1
        else:
            self._starts.insert(at, position)
            self._ends.insert(at, position + 1)

    def discard(self, position: int) -> None:
        """Remove a position if it is present."""
        if position in self:
            at = bisect_right(self._starts, position) - 1
            start, end = self._starts.pop(at), self._ends.pop(at)
            for piece in ((position + 1, end), (start, position)):
                if piece[0] < piece[1]:
                    self._starts.insert(at, piece[0])
                    self._ends.insert(at, piece[1])

    def within(self, kept: Iterable[tuple[int, int]]) -> Ranges:
        """The positions that are in any of some ranges, which are in order."""
        found = Ranges()
        for start, end in kept:
            at = max(0, bisect_right(self._starts, start) - 1)
            while at < len(self._starts) and self._starts[at] < end:
                low, high = max(start, self._starts[at]), min(end, self._ends[at])
                if low < high:
                    found._append(low, high)
                at += 1
        return found

    def _append(self, start: int, end: int) -> None:
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
        else:
            self._starts.append(start)
            self._ends.append(end)

    def encode(self) -> str:
        """The positions as a short string."""
        packed, before = bytearray(), 0
        for edge in itertools.chain.from_iterable(self):
            step, before = edge - before, edge
            while step > 0x7F:
                packed.append(step & 0x7F | 0x80)
                step >>= 7
            packed.append(step)
        return base64.b85encode(zlib.compress(bytes(packed), 6)).decode()

    @classmethod
    def decode(cls, text: str) -> Ranges:
        """The positions of a string that :meth:`encode` returned."""
        edges, edge, step, shift = [], 0, 0, 0
        for byte in zlib.decompress(base64.b85decode(text)):
            step |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                edge += step
                edges.append(edge)
                step = shift = 0
        return cls(zip(edges[::2], edges[1::2], strict=True))


@dataclass(slots=True)
class Survey:
    """The first pass over a manifest: its length, and a digest of each of its segments.

    A segment is a hundredth as long as everything before it, so a changed line costs no more than that: segments before and after
    it keep their progress.

    :param total: the number of entries.
    :param segments: the digests; the last segment may be incomplete.
    """

    total: int = 0
    segments: bytes = b""

    @classmethod
    def of(cls, entries: Iterable[tuple[Entry, bytes]], earlier: State | None = None) -> tuple[Survey, Match]:
        """Read the manifest.

        :param entries: the manifest.
        :param earlier: the state of an earlier try.
        :returns: the survey, and what is unchanged since the earlier try.
        """
        total, length = 0, earlier.survey.total if earlier else -1
        found, tail, lines = bytearray(), b"", [1]
        start, end, running = 0, 1, hashlib.blake2b(digest_size=_SEGMENT_DIGEST)
        for entry, digest in entries:
            running.update(digest)
            total += 1
            if total == length:
                tail = running.digest()
            if total == end:
                found += running.digest()
                lines.append(entry.line + 1)
                start, end = end, end + max(1, end // 100)
                running = hashlib.blake2b(digest_size=_SEGMENT_DIGEST)
        if total > start:
            found += running.digest()
        survey = cls(total, bytes(found))
        return survey, _match(survey.segments, tail, lines, earlier.survey) if earlier else Match()


@dataclass(frozen=True, slots=True)
class Match:
    """A manifest, compared with the one of an earlier try.

    :param unchanged: the ranges of positions that are unchanged.
    :param changed_line: the first change is at this line or after it; None if nothing changed.
    """

    unchanged: tuple[tuple[int, int], ...] = ()
    changed_line: int | None = None


def _match(found: bytes, tail: bytes, lines: list[int], earlier: Survey) -> Match:
    """Compare segments.

    :param found: the digests of the segments as they are now.
    :param tail: the digest of the earlier manifest's last segment, cut where that one ended.
    :param lines: the line at or after which each segment begins.
    :param earlier: the earlier manifest.
    """
    unchanged: list[tuple[int, int]] = []
    changed_line, start, end = None, 0, 1
    for number, at in enumerate(range(0, len(earlier.segments), _SEGMENT_DIGEST)):
        wanted = earlier.segments[at : at + _SEGMENT_DIGEST]
        is_last = end >= earlier.total
        if wanted == (tail if is_last else found[at : at + _SEGMENT_DIGEST]):
            unchanged.append((start, min(end, earlier.total)))
        elif changed_line is None:
            changed_line = lines[min(number, len(lines) - 1)]
        start, end = end, end + max(1, end // 100)
    return Match(tuple(unchanged), changed_line)


@dataclass(slots=True)
class State:
    """The state of a batch, stored every second.

    :param survey: the manifest to which the positions belong.
    :param settled: positions that need no more requests.
    :param unknown: settled positions that may have been queued.
    :param failures: the first unknown outcomes, redacted.
    """

    survey: Survey = field(default_factory=Survey)
    settled: Ranges = field(default_factory=Ranges)
    unknown: Ranges = field(default_factory=Ranges)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON."""
        sizes = itertools.accumulate(len(json.dumps(failure)) for failure in self.failures)
        return {
            "version": STATE_FORMAT,
            "total": self.survey.total,
            "segments": base64.b85encode(self.survey.segments).decode(),
            "settled": self.settled.encode(),
            "unknown": self.unknown.encode(),
            "failures": [failure for failure, size in zip(self.failures, sizes, strict=True) if size <= _MAX_FAILURES_SIZE],
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> State:
        """The state that :meth:`to_dict` returned."""
        survey = Survey(stored["total"], base64.b85decode(stored["segments"]))
        return cls(survey, Ranges.decode(stored["settled"]), Ranges.decode(stored["unknown"]), stored["failures"])


class RecordedOutcomes:
    """The outcomes in receipts, by digest."""

    def __init__(self) -> None:
        self.finished = 0
        """The number of settled entries."""
        self._queued = KeySet()
        self._more: Counter[bytes] = Counter()
        self._skipped: Counter[bytes] = Counter()
        self._unknown: dict[bytes, list[dict[str, Any]]] = {}

    @property
    def unknown(self) -> int:
        """The number of settled entries that may have been queued."""
        return sum(map(len, self._unknown.values()))

    def add(self, receipt: Any) -> None:
        """Add a receipt, in the order of writing; a failed URL is not settled.

        :raises ValueError: or another of ``DAMAGES``, if it is not a receipt.
        """
        digest, status = bytes.fromhex(receipt["digest"]), Status(receipt["status"])
        if len(digest) != _DIGEST:
            raise ValueError
        key = digest[:KEY_SIZE]
        if receipt.get("before") == Status.UNKNOWN.value and self._unknown.get(key):
            self._unknown[key].pop()
            self.finished -= 1
        self.finished += status is not Status.FAILED
        if status is Status.QUEUED:
            if key in self._queued:
                self._more[key] += 1
            self._queued.add(key)
        elif status is Status.SKIPPED:
            self._skipped[key] += 1
        elif status is Status.UNKNOWN:
            failure = {name: receipt.get(name) or "" for name in ("url", "error")}
            if not all(isinstance(text, str) for text in failure.values()):
                raise TypeError
            self._unknown.setdefault(key, []).append(failure)

    def pop(self, key: bytes) -> tuple[Status, dict[str, Any]] | None:
        """Remove and return one outcome of a URL, by the first bytes of its digest; None if there is none left."""
        if self._more.get(key):
            self._more[key] -= 1
            return Status.QUEUED, {}
        if key in self._queued:
            self._queued.discard(key)
            return Status.QUEUED, {}
        return (Status.UNKNOWN, self._unknown[key].pop()) if self._unknown.get(key) else None

    def pop_skipped(self, key: bytes) -> bool:
        """Remove one receipt of a skipped duplicate, and return whether there was one."""
        if not self._skipped.get(key):
            return False
        self._skipped[key] -= 1
        return True


@dataclass(frozen=True, slots=True)
class Ticket:
    """An entry that needs a request.

    :param index: its position among the entries of this shard.
    :param entry: the entry.
    :param digest: its digest.
    :param before: ``unknown`` if an earlier try may have queued it.
    """

    index: int
    entry: Entry
    digest: bytes = field(repr=False)
    before: str = ""


class Ledger:
    """The outcomes of a batch, in this try and earlier ones.

    :param survey: the manifest.
    :param state: the state of earlier tries, as far as it applies to this manifest.
    :param recorded: the outcomes in the receipts of earlier tries.
    :param unchanged: the ranges of positions at which the manifest is that of the state.
    :param skip_duplicates: send duplicate URLs only once.
    :param retry_unknown: resend uploads that an earlier try may have queued.
    :param writes_receipts: whether receipts are written.
    :param try_number: the try, for the receipts.
    :param secrets: what receipts must not hold, such as the access token.
    """

    def __init__(
        self,
        survey: Survey,
        state: State | None = None,
        recorded: RecordedOutcomes | None = None,
        *,
        unchanged: Iterable[tuple[int, int]] = (),
        skip_duplicates: bool = True,
        retry_unknown: bool = False,
        writes_receipts: bool = False,
        try_number: int = 1,
        secrets: Callable[[], tuple[Secret, ...]] = tuple,
    ) -> None:
        self._secrets = secrets
        earlier = state or State()
        self._state = State(survey, earlier.settled, earlier.unknown, list(earlier.failures))
        self._settled_before = Ranges(earlier.settled)
        self._unknown_before = Ranges(earlier.unknown)
        # A receipt does not tell which occurrence of a URL it is of: where the state knows better, it may be a later one.
        last = max((end for _, end in earlier.settled), default=0)
        self._known_before = Ranges() if skip_duplicates else Ranges(unchanged).within([(0, last)])
        self._failures_before = {failure["position"]: failure for failure in earlier.failures}
        self._recorded = recorded or RecordedOutcomes()
        self._skip, self._retry_unknown = skip_duplicates, retry_unknown
        self._try = try_number
        self.writes_receipts = writes_receipts
        """Whether outcomes are kept in full; otherwise responses need not be."""
        self._index = 0
        self._resolved_keys = KeySet()
        self._waiting: dict[bytes, list[Ticket]] = {}
        self._waiters = 0
        self._failed = Ranges()
        self._failed_by_key: dict[bytes, list[int]] = {}
        self._lines: list[str] = []
        self.retries: deque[Ticket] = deque()
        """Entries to send after all: duplicates whose first occurrence failed, and uploads that failed with the service."""
        self.now: Counter[Status] = Counter()
        """Outcomes of this try, by status."""
        self.earlier: Counter[Status] = Counter()
        """Outcomes of earlier tries, by status."""
        self.failures: list[dict[str, Any]] = []
        """The first failures, redacted."""
        self.first_failure: dict[str, Any] | None = None
        """The first failure of this try."""
        self.forgotten = 0
        """Failed entries that a later try will not resend, because the state has no room for them."""

    @property
    def finished(self) -> int:
        """The number of finished entries, in this try and earlier ones."""
        return sum(self.now.values()) + sum(self.earlier.values())

    @property
    def is_congested(self) -> bool:
        """Whether too many duplicates wait for the outcome of their first occurrence."""
        return self._waiters > _MAX_WAITING

    def admit(self, entry: Entry, digest: bytes) -> Ticket | None:
        """Admit the next entry of the manifest.

        :returns: a ticket if it needs a request; None if it is settled, is not a URL, or waits for its first occurrence.
        """
        index, key = self._index, digest[:KEY_SIZE]
        self._index += 1
        ticket = Ticket(index, entry, digest)
        may_skip = self._skip and not entry.problem
        if may_skip and key in self._resolved_keys:
            self._skip_duplicate(ticket, index in self._settled_before or self._recorded.pop_skipped(key))
            return None
        if status := self._resolve_without_request(ticket, key):
            if not (status is Status.UNKNOWN and self._retry_unknown):
                self._mark_resolved(key)
                return None
            ticket = Ticket(index, entry, digest, status.value)
        if entry.problem:
            self.record(ticket, Status.FAILED, error=f"line {entry.line}: {entry.problem}")
            return None
        if may_skip:
            if key in self._waiting:
                self._waiting[key].append(ticket)
                self._waiters += 1
                return None
            self._waiting[key] = []
        return ticket

    def _resolve_without_request(self, ticket: Ticket, key: bytes) -> Status | None:
        """Resolve an entry that earlier tries settled, and return its status; None if it needs a request."""
        index, entry = ticket.index, ticket.entry
        by_state = index in self._settled_before
        by_receipt = not entry.problem and (by_state or index not in self._known_before)
        receipt = self._recorded.pop(key) if by_receipt else None
        if receipt is None and not by_state:
            return None
        status = receipt[0] if receipt else Status.UNKNOWN if index in self._unknown_before else Status.QUEUED
        if status is Status.UNKNOWN and self._retry_unknown:
            return status
        self.earlier[status] += 1
        self._mark_settled(index, status)
        if receipt is None:  # the state was stored, but not the receipt
            self._add_receipt(ticket, status, {"url": redact_url(str(entry.url)), "earlier": True})
        if status is Status.UNKNOWN:
            failure = receipt[1] if receipt else self._failures_before.get(entry.position, {})
            self._add_failure(entry, status, failure.get("url", ""), failure.get("error", "unknown since an earlier try"))
        return status

    def record(self, ticket: Ticket, status: Status, *, url: str = "", error: str = "", response: Any = None) -> None:
        """Record the outcome of an entry.

        :param url: the URL, redacted.
        :param error: why it failed.
        :param response: the service's response.
        """
        key = ticket.digest[:KEY_SIZE]
        if ticket.before and status is Status.FAILED:
            status = Status.UNKNOWN  # an earlier try may have queued it
        self.now[status] += 1
        if self.writes_receipts:
            self._add_receipt(ticket, status, {"url": url, **({"error": error} if error else {"response": response})})
        if status is Status.FAILED:
            self._failed.add(ticket.index)
            if self._skip and not ticket.entry.problem:
                self._failed_by_key.setdefault(key, []).append(ticket.index)
        else:
            self._mark_settled(ticket.index, status)
            self._mark_resolved(key)
            for index in self._failed_by_key.pop(key, ()):  # earlier occurrences that failed need no request now
                self._mark_settled(index, status)
                self._failed.discard(index)
        if error:
            failure = self._add_failure(ticket.entry, status, url, error)
            self.first_failure = self.first_failure or failure
        self._release(key, settled=status is not Status.FAILED)

    def _release(self, key: bytes, *, settled: bool) -> None:
        """Skip the duplicates that waited for an entry, or send the first of them if it failed."""
        waiting = self._waiting.pop(key, [])
        if settled:
            self._waiters -= len(waiting)
            for ticket in waiting:
                self._skip_duplicate(ticket, self._recorded.pop_skipped(key))
        elif waiting:
            self._waiters -= 1
            self.retries.append(waiting[0])
            self._waiting[key] = waiting[1:]

    def _skip_duplicate(self, ticket: Ticket, earlier: bool) -> None:
        (self.earlier if earlier else self.now)[Status.SKIPPED] += 1
        self._mark_settled(ticket.index, Status.SKIPPED)
        if not earlier:
            self._add_receipt(ticket, Status.SKIPPED, {"url": redact_url(str(ticket.entry.url))})

    def _mark_resolved(self, key: bytes) -> None:
        if self._skip:
            self._resolved_keys.add(key)

    def _mark_settled(self, index: int, status: Status) -> None:
        self._state.settled.add(index)
        if status is Status.UNKNOWN:
            self._state.unknown.add(index)
        else:
            self._state.unknown.discard(index)

    def _add_failure(self, entry: Entry, status: Status, url: str, error: str) -> dict[str, Any]:
        failure = {
            "position": entry.position,
            "line": entry.line,
            "url": url[:200],
            "status": status.value,
            "error": error[:400],
        }
        if len(self.failures) < FAILURES_REPORTED:
            self.failures.append(failure)
        if status is Status.UNKNOWN and len(self._state.failures) < FAILURES_REPORTED:
            self._state.failures.append(failure)
        return failure

    def _add_receipt(self, ticket: Ticket, status: Status, more: dict[str, Any]) -> None:
        if not self.writes_receipts:
            return
        entry = ticket.entry
        receipt = {
            "position": entry.position,
            "line": entry.line,
            **({"key": self._redacted_key(entry)} if entry.key is not None else {}),
            "digest": ticket.digest.hex(),
            "status": status.value,
            "try": self._try,
            **({"before": ticket.before} if ticket.before else {}),
        }
        self._lines.append(_as_line(receipt, more))

    def _redacted_key(self, entry: Entry) -> Any:
        """The manifest's own id of a line, redacted: the column may repeat the URL, a part of it, or the token."""
        text = str(entry.key)
        if "://" in text:
            text = redact_url(text)
        if hides_secret(text[:_MAX_RESPONSE_SIZE], (*self._secrets(), *url_secrets(str(entry.url)))):
            return MASK
        return entry.key if text == str(entry.key) else text

    def drain_receipts(self) -> list[str]:
        """Remove and return the receipts since the last call; the caller has to write them."""
        lines, self._lines = self._lines, []
        return lines

    def to_state(self) -> dict[str, Any]:
        """The state as JSON, always below 64 KiB.

        If so many entries failed that their positions do not fit, the first ones count as settled, and a later try does not
        resend them. Queued entries are never forgotten.
        """
        state = self._state.to_dict()
        while len(state["settled"]) > _MAX_SETTLED_SIZE and (failed := list(self._failed)):
            half = len(failed) // 2 + 1
            self._failed = Ranges(failed[half:])
            for index in itertools.chain.from_iterable(itertools.starmap(range, failed[:half])):
                self._state.settled.add(index)
                self.forgotten += 1
            state["settled"] = self._state.settled.encode()
        if len(state["unknown"]) > _MAX_UNKNOWN_SIZE:
            state["unknown"] = Ranges().encode()
        return state


def _as_line(receipt: dict[str, Any], more: dict[str, Any]) -> str:
    """A receipt as one line of bounded length, whatever the service responded."""
    try:
        text = _to_strict_json(more)
    except (TypeError, ValueError, RecursionError):
        text = ""
    if not text or len(text) > _MAX_RESPONSE_SIZE:
        text = json.dumps({**more, "response": None, "error": str(more.get("error", ""))[:1000], "response_left_out": True})
    return f"{_to_json(receipt)[:-1]}, {text[1:]}"
