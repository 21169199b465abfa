"""Writes files atomically, on this machine or in a store; knows which paths are local, and what each store can do."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.exceptions import InvalidInputError

_LOCAL = ("", "file", "local")
_TRANSACTIONAL = ("s3", "s3a", "gs", "gcs")  # an upload to these is invisible until it is committed
# Here, a file written in a single request appears when it is complete, and a folder is a name prefix that needs no creation.
_OBJECT_STORES = (*_TRANSACTIONAL, "abfs", "abfss", "adl", "oss", "memory")
_MISSING_BUCKET = {"FileNotFoundError", "ResourceNotFoundError"}  # the second error is Azure's, which adlfs may wrap
_PERMANENT_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EACCES)  # fsync, by a mounted share


def _protocol(path: Any) -> str:
    return getattr(path, "protocol", "")


def is_local(path: Any) -> bool:
    """Return whether a ``pathlib.Path`` or an ``ObjectStoragePath`` is on this machine."""
    return _protocol(path) in _LOCAL


def filesystem(path: Any) -> tuple[Any, str]:
    """Return the fsspec filesystem of a ``Path`` or an ``ObjectStoragePath``, and the path in it; local links are resolved."""
    from fsspec.implementations.local import LocalFileSystem

    if is_local(path):
        return LocalFileSystem(), os.path.realpath(getattr(path, "path", path))
    return path.fs, path.path


def validate_target(path: Any) -> None:
    """Raise ``InvalidInputError`` if a local path exists but is not a file, such as a folder."""
    if not is_local(path):
        return
    found = filesystem(path)[1]
    if os.path.exists(found) and not os.path.isfile(found):
        raise InvalidInputError(f"target '{found}' is not a file (end the path of a folder with '/')")


def permanent_problem(path: Any, error: Exception) -> str:
    """Return why no retry fixes an error of a path's store, such as a read-only local folder; empty if a retry may help."""
    if is_local(path) and isinstance(error, OSError) and error.errno in _PERMANENT_ERRORS:
        return error.strerror or type(error).__name__
    is_missing = _MISSING_BUCKET & {type(error).__name__, type(error.__cause__).__name__}
    return "its bucket or container does not exist" if is_missing and _protocol(path) in _OBJECT_STORES else ""


def replace_file(path: Any, content: bytes) -> None:
    """Write or replace a small file: in one request to an object store; elsewhere atomically, after creating its folder."""
    if _protocol(path) in _OBJECT_STORES:
        path.fs.pipe_file(path.path, content)
        return
    if not is_local(path):
        with suppress(PermissionError):  # some servers refuse it though the folder exists; if not, writing fails
            path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content)


@contextmanager
def atomic_write(path: Any, tries: Sequence[str] = ()) -> Iterator[_CommittedFile]:
    """Open a file that appears at its path only if the block ends without an error; otherwise, the path stays unchanged.

    :param tries: the names of the writing task's tries, up to the running try, whose name the part file gets. Part files of
        earlier tries are removed, so that an earlier try that still runs fails when it completes its part.
    :raises InvalidInputError: if the file cannot be created, and no retry helps.
    """
    validate_target(path)
    kind = _LocalFile if is_local(path) else _CommittedFile if _protocol(path) in _TRANSACTIONAL else _RenamedFile
    try:
        file = kind(*filesystem(path), tries)
    except OSError as error:
        if reason := permanent_problem(path, error):
            raise InvalidInputError(f"'{path}' cannot be created: {reason}") from None
        raise
    try:
        yield file
        file.commit()
    except BaseException:
        file.discard()
        raise


class _CommittedFile:
    """An upload that is invisible until it is committed. Its bytes cannot be taken back, so a restart opens a new upload."""

    def __init__(self, fs: Any, path: str, tries: Sequence[str]) -> None:
        self._fs, self._path, self._tries = fs, path, tries
        self._file: Any = self._open()

    def _open(self) -> Any:
        return self._fs.open(self._path, "wb", autocommit=False)

    def write(self, content: bytes) -> None:
        self._file.write(content)

    def restart(self) -> None:
        """Discard what was written."""
        if self._file.tell():
            self.discard()
            self._file = self._open()

    def commit(self) -> None:
        """Send the remaining bytes, and complete the upload."""
        self._file.close()
        self._file.commit()

    def discard(self) -> None:
        """Abandon the upload. An error on the way is dropped, because it must not hide the original error."""
        with suppress(Exception):
            self._file.discard()
        self._file.closed = True  # else fsspec would upload the rest when the object is garbage-collected


class _RenamedFile(_CommittedFile):
    """A part file next to the target, renamed when complete, for a store where incomplete files are visible."""

    def _open(self) -> Any:
        self._part = self._new_part()
        return self._fs.open(self._part, "wb")

    def commit(self) -> None:
        """Rename the part to the target."""
        self._file.close()
        self._fs.mv(self._part, self._path)

    def discard(self) -> None:
        """Remove the part. An error on the way is dropped, because it must not hide the original error."""
        with suppress(Exception):
            self._file.close()
        with suppress(Exception):
            self._fs.rm(self._part)

    def _new_part(self) -> str:
        """Return the path of the part. Its name is random outside a task, and if the same try writes the target twice."""
        folder, slash, name = self._path.rpartition("/")
        start = f"{folder}{slash}.{name.encode()[:100].decode(errors='ignore')}"
        parts = [f"{start}.{try_name}.part" for try_name in self._tries]
        for earlier in parts[:-1]:
            with suppress(OSError):  # the part is gone, or the store refuses to remove it
                self._fs.rm(earlier)
        if parts and not self._fs.exists(parts[-1]):
            return parts[-1]
        return f"{start}.{secrets.token_hex(6)}.part"


class _LocalFile(_RenamedFile):
    """A part file next to a local target. It gets the mode of the file that it replaces, if the mount supports modes."""

    def _open(self) -> Any:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self._part = self._new_part()
        file = open(self._part, "xb")  # noqa: SIM115  (closed by commit or discard)
        with suppress(OSError):  # the target does not exist yet, or the mount has no modes
            os.fchmod(file.fileno(), os.stat(self._path).st_mode & 0o7777)
        return file

    def commit(self) -> None:
        """Move the part to the target, once its bytes are on the disk."""
        self._file.flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        self._file.close()
        Path(self._part).replace(self._path)  # fails if a later try has removed the part
