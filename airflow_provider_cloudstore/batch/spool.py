"""Copies a manifest to a local file without a name: what is counted is what is sent, and nothing of it can stay behind."""

from __future__ import annotations

import tempfile
from typing import IO, BinaryIO

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError

_BLOCK_SIZE = 256 * 1024


def spooled(source: BinaryIO, name: str) -> IO[bytes]:
    """A copy of a file as it is, in the folder for temporary files, until it is closed.

    :param source: the file; reading it blocks.
    :param name: its path, for messages.
    :raises BatchInterruptedError: if it cannot be read to its end, or does not fit.
    """
    cause = "disk"  # that of an error in what is done next
    try:
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (the caller closes it)
        cause = "store"
        while block := source.read(_BLOCK_SIZE):
            cause = "disk"
            while block:
                block = block[copy.write(block) :]
            cause = "store"
        return copy
    except Exception as error:  # noqa: BLE001  (of any store; its text may hold credentials)
        reason = (cause == "disk" and isinstance(error, OSError) and error.strerror) or type(error).__name__
    problem = "read to its end" if cause == "store" else f"copied to {tempfile.tempdir or 'TMPDIR'}"
    raise BatchInterruptedError(f"the manifest {name} cannot be {problem} ({reason})", operation="batch upload", cause=cause)
