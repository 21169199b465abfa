"""The identity of a URL and its outcome, with a table of them that takes a quarter of the memory of a dict."""

from __future__ import annotations

import hashlib
from enum import Enum

KEY_SIZE = 12
"""Bytes of a digest that are kept: ten million URLs collide with a probability of 10^-15."""
_SLOT_SIZE = KEY_SIZE + 1
_TABLES = 256  # each grows by itself, so that no addition takes long
_FIRST_SLOTS = 8


class Status(Enum):
    """The outcome of a URL."""

    QUEUED = "queued"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    UNSENT = "unsent"


def digest_of(url: str) -> bytes:
    """The SHA-256 of a URL, exactly as in the manifest, in UTF-8: it is the URL's identity in receipts, state and shards."""
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest()


class KeyTable:
    """Maps the first ``KEY_SIZE`` bytes of digests to small numbers: hash tables with open addressing, 20 to 39 bytes a key."""

    __slots__ = ("_tables", "_used")

    def __init__(self) -> None:
        self._tables = [bytearray(_FIRST_SLOTS * _SLOT_SIZE) for _ in range(_TABLES)]
        self._used = [0] * _TABLES

    def get(self, key: bytes) -> int:
        """The number of a key: the beginning of a digest. 0 if there is none."""
        table = self._tables[key[0]]
        return table[_slot(table, key) + KEY_SIZE]

    def set(self, key: bytes, number: int) -> None:
        """Set the number of a key, from 1 to 255."""
        number_of_table = key[0]
        table = self._tables[number_of_table]
        at = _slot(table, key)
        if not table[at + KEY_SIZE]:
            self._used[number_of_table] += 1
            if self._used[number_of_table] * _SLOT_SIZE * 3 > len(table) * 2:
                table = self._tables[number_of_table] = _grown(table)
                at = _slot(table, key)
            table[at : at + KEY_SIZE] = key
        table[at + KEY_SIZE] = number


def _grown(table: bytearray) -> bytearray:
    grown = bytearray(2 * len(table))
    for start in range(0, len(table), _SLOT_SIZE):
        if table[start + KEY_SIZE]:
            slot = table[start : start + _SLOT_SIZE]
            at = _slot(grown, slot[:KEY_SIZE])
            grown[at : at + _SLOT_SIZE] = slot
    return grown


def _slot(table: bytearray, key: bytes | bytearray) -> int:
    """Where a key is in a table, or would be."""
    size = len(table)
    at = int.from_bytes(key[1:8]) * _SLOT_SIZE % size
    while table[at + KEY_SIZE] and not table.startswith(key, at):
        at = (at + _SLOT_SIZE) % size
    return at
