"""Copies a manifest to a local file without a name: what is counted is what is sent, and nothing of it can stay behind."""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from typing import Any, BinaryIO

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError

_BLOCK_SIZE = 256 * 1024


class Spool:
    """A file without a name in the folder for temporary files; it exists for as long as the spool or a reading."""

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (closed by what follows)
        weakref.finalize(self, self._file.close)

    def append(self, block: bytes) -> None:
        """Write a block at the end."""
        rest = memoryview(block)
        while rest:
            rest = rest[self._file.write(rest) :]

    def open(self) -> io.RawIOBase:
        """The file from its beginning, with a position of its own."""
        return _Reading(self)

    def read_into(self, buffer: Any, start: int) -> int:
        """Fill a buffer with what follows a position, as far as there is enough."""
        return os.preadv(self._file.fileno(), [buffer], start)


class _Reading(io.RawIOBase):
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._spool.read_into(buffer, self._position)
        self._position += count
        return count


def spooled(source: BinaryIO, name: str) -> Spool:
    """A copy of a file as it is.

    :param source: the file; reading it blocks.
    :param name: its path, for messages.
    :raises BatchInterruptedError: if it cannot be read to its end, or does not fit.
    """
    reason, cause = "", "disk"  # the cause is that of what is done next
    try:
        spool = Spool()
        cause = "store"
        while block := source.read(_BLOCK_SIZE):
            cause = "disk"
            spool.append(block)
            cause = "store"
    except Exception as error:  # noqa: BLE001  (of any store; its text may hold credentials)
        reason = (cause == "disk" and isinstance(error, OSError) and error.strerror) or type(error).__name__
    if not reason:
        return spool
    folder = tempfile.tempdir or os.environ.get("TMPDIR", "/tmp")  # noqa: S108
    problem = "read to its end" if cause == "store" else f"copied to {folder}"
    raise BatchInterruptedError(f"the manifest {name} cannot be {problem} ({reason})", operation="batch upload", cause=cause)
