"""Keeps a batch's progress in Airflow's state store, by position: small enough to be stored every second.

What earlier tries settled may not move: one digest of all settled (position, URL) pairs, in any order, shows whether it did.
With receipts, which need no positions, the store holds only the mark of the try and the time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from contextlib import suppress
from typing import Any, Protocol

from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.tries import STATE_KEY, WAYS_OUT, Try
from airflow_provider_cloudstore.protocol.errors import BatchStoppedError

PLACE = "Airflow's state store"
_ROOM = 48_000  # characters, of the 64 KiB that Airflow takes: the rest is for what is in flight when the batch stops
_DIGEST_SIZE = 16


class StateStore(Protocol):
    """What a batch needs of Airflow's task state store; both methods block."""

    def get(self, key: str) -> Any:
        """What is stored, or None."""

    def set(self, key: str, value: Any) -> None:
        """Store JSON."""


class Positions:
    """Positions of a manifest that need no more requests, and a digest of what stands there."""

    def __init__(self, settled: bytes | bytearray = b"", unknown: bytes | bytearray = b"", digest: int = 0) -> None:
        self._settled = bytearray(settled)
        self._unknown = bytearray(unknown)
        self._digest = digest

    def __contains__(self, position: int) -> bool:
        return _has(self._settled, position)

    def status(self, position: int) -> Status | None:
        """The outcome at a position, queued or unknown; None if it is not settled."""
        if position not in self:
            return None
        return Status.UNKNOWN if _has(self._unknown, position) else Status.QUEUED

    def add(self, position: int, url_digest: bytes) -> None:
        """Settle a position."""
        if position not in self:
            _put(self._settled, position, True)
            pair = hashlib.blake2b(b"%d %s" % (position, url_digest), digest_size=_DIGEST_SIZE)
            self._digest = (self._digest + int.from_bytes(pair.digest())) % 256**_DIGEST_SIZE

    def set_unknown(self, position: int, is_unknown: bool) -> None:
        """Note whether the upload at a settled position may have been queued."""
        if is_unknown or _has(self._unknown, position):
            _put(self._unknown, position, is_unknown)

    def matches(self, other: Positions) -> bool:
        """Whether the same URLs are settled at the same positions."""
        return self._digest == other._digest and self._settled.rstrip(b"\0") == other._settled.rstrip(b"\0")

    def copy(self) -> Positions:
        """A copy, which another thread may store."""
        return Positions(self._settled, self._unknown, self._digest)

    def to_dict(self) -> dict[str, Any]:
        """The positions as JSON."""
        digest = self._digest.to_bytes(_DIGEST_SIZE).hex()
        return {"settled": _encode(self._settled), "unknown": _encode(self._unknown), "digest": digest}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Positions:
        """The positions that :meth:`to_dict` returned."""
        return cls(_decode(stored["settled"]), _decode(stored["unknown"]), int.from_bytes(bytes.fromhex(stored["digest"])))


class State:
    """The state of one batch, as one try sees it. All methods block.

    :param store: the task's state store.
    :param writer: the try.
    """

    def __init__(self, store: StateStore, writer: Try) -> None:
        self._store = store
        self._writer = writer
        self.is_in_receipts = False
        """Whether earlier tries kept their progress in receipts."""
        self.is_full = False
        """Whether there is no room for more than what is in flight."""

    def claim(self) -> Positions | None:
        """Leave the mark of this try, which stops any older one, and return what earlier tries settled.

        :raises BatchInterruptedError: if a newer try has left its mark.
        :raises BatchStoppedError: if what is stored is damaged, or of another format.
        """
        # The mark comes before the reading: what an older try writes when it thaws in between would be lost otherwise.
        self._store.set(STATE_KEY, {**self._validated(begins=True), "writer": self._writer.to_mark()})
        stored = self._validated(begins=True)
        self.is_in_receipts = stored.get("receipts") is True
        if "settled" not in stored:
            return None
        with suppress(ValueError, TypeError, KeyError, zlib.error):
            return Positions.from_dict(stored)
        raise BatchStoppedError(
            f"the batch's state in {PLACE} is damaged; nothing was sent", operation="batch upload", cause="state", advice=WAYS_OUT
        )

    def save(self, positions: Positions | None) -> None:
        """Store a checkpoint with the mark of this try.

        :param positions: what is settled; None if receipts hold the progress.
        :raises BatchInterruptedError: if a newer try has left its mark.
        """
        self._validated()
        progress = positions.to_dict() if positions else {"receipts": True}
        self.is_full = len(json.dumps(progress)) > _ROOM
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._store.set(STATE_KEY, {**progress, "at": now, "writer": self._writer.to_mark()})

    def _validated(self, *, begins: bool = False) -> dict[str, Any]:
        stored = self._store.get(STATE_KEY)
        if stored is None:
            return {}
        fields = stored if isinstance(stored, dict) else {}
        self._writer.validate(fields.get("writer") or "none", PLACE, begins=begins)
        return fields


def _has(bits: bytearray, position: int) -> bool:
    return position >> 3 < len(bits) and bool(bits[position >> 3] >> (position & 7) & 1)


def _put(bits: bytearray, position: int, value: bool) -> None:
    missing = (position >> 3) + 1 - len(bits)
    if missing > 0:
        bits.extend(bytes(missing))
    if value:
        bits[position >> 3] |= 1 << (position & 7)
    else:
        bits[position >> 3] &= ~(1 << (position & 7))


def _encode(bits: bytearray) -> str:
    return base64.b85encode(zlib.compress(bits)).decode()


def _decode(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))
