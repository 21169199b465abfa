"""A set of digests in a quarter of the memory of Python's: with millions of URLs it is most of what a batch needs."""

from __future__ import annotations

KEY_SIZE = 12
"""Bytes of a digest that are kept: ten million URLs collide with a probability of 10^-15."""
_EMPTY = bytes(KEY_SIZE)
_REMOVED = b"\xff" * KEY_SIZE
_SHARDS = 256  # each grows by itself, so that no addition takes long
_FIRST_SLOTS = 8


class KeySet:
    """The first ``KEY_SIZE`` bytes of digests in hash tables with open addressing: 18 to 36 bytes a key."""

    __slots__ = ("_tables", "_used")

    def __init__(self) -> None:
        self._tables = [bytearray(_FIRST_SLOTS * KEY_SIZE) for _ in range(_SHARDS)]
        self._used = [0] * _SHARDS

    def __contains__(self, key: bytes) -> bool:
        table, at = self._find(key)
        return table.startswith(key, at)

    def add(self, key: bytes) -> None:
        """Add a key: the beginning of a digest."""
        table, at = self._find(key)
        if table.startswith(key, at):
            return
        table[at : at + KEY_SIZE] = key
        shard = key[0]
        self._used[shard] += 1
        if self._used[shard] * KEY_SIZE * 3 > len(table) * 2:
            self._grow(shard)

    def discard(self, key: bytes) -> None:
        """Remove a key if it is present."""
        table, at = self._find(key)
        if table.startswith(key, at):
            table[at : at + KEY_SIZE] = _REMOVED  # the slot stays used, so that keys added after it are found

    def _find(self, key: bytes) -> tuple[bytearray, int]:
        """Where a key is, or would be."""
        table = self._tables[key[0]]
        return table, _slot(table, key)

    def _grow(self, shard: int) -> None:
        old = self._tables[shard]
        table, used = bytearray(2 * len(old)), 0
        for start in range(0, len(old), KEY_SIZE):
            key = bytes(old[start : start + KEY_SIZE])
            if key not in (_EMPTY, _REMOVED):
                at = _slot(table, key)
                table[at : at + KEY_SIZE] = key
                used += 1
        self._tables[shard], self._used[shard] = table, used


def _slot(table: bytearray, key: bytes) -> int:
    """Where a key is in a table, or would be."""
    size = len(table)
    at = int.from_bytes(key[1:8]) * KEY_SIZE % size
    while not (table.startswith(key, at) or table.startswith(_EMPTY, at)):
        at = (at + KEY_SIZE) % size
    return at
