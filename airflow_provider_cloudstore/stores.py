"""Writes files atomically, on this machine or in a store; knows which paths are local, and what each store can do."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from airflow_provider_cloudstore.exceptions import InvalidInputError

_LOCAL = ("", "file", "local")
# Here, a file appears when it is complete, and a folder is a name prefix that needs no creation.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "oss", "memory")
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
def atomic_write(path: Any) -> Iterator[BinaryIO]:
    """Open a file that appears at its path only if the block ends without an error; otherwise, the path stays unchanged.

    The file is written to this machine first: next to a local target, and to the temporary folder for a store.

    :raises InvalidInputError: if the file cannot be created, and no retry helps.
    """
    validate_target(path)
    fs, target = filesystem(path)
    part, file = _create_part(path, target)
    try:
        with file:
            yield file
            file.flush()
            _sync(file)
        if is_local(path):
            Path(part).replace(target)
        elif _protocol(path) in _OBJECT_STORES:
            fs.put_file(part, target)
        else:
            _put_and_rename(fs, part, target)
    finally:
        Path(part).unlink(missing_ok=True)


def _part_of(target: str) -> str:
    """Return a path next to a target whose random name shows what it was for, if a killed process leaves it behind."""
    folder, slash, name = target.rpartition("/")
    return f"{folder}{slash}.{name.encode()[:100].decode(errors='ignore')}.{secrets.token_hex(6)}.part"


def _create_part(path: Any, target: str) -> tuple[str, BinaryIO]:
    if not is_local(path):
        number, part = tempfile.mkstemp()
        return part, open(number, "wb")
    part = _part_of(target)
    try:
        os.makedirs(os.path.dirname(part), exist_ok=True)
        file = open(part, "xb")  # noqa: SIM115  (closed by its caller)
    except OSError as error:
        if reason := permanent_problem(path, error):
            raise InvalidInputError(f"'{path}' cannot be created: {reason}") from None
        raise
    with suppress(OSError):  # the target does not exist yet, or the mount has no modes
        os.fchmod(file.fileno(), os.stat(target).st_mode & 0o7777)
    return part, file


def _sync(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def _put_and_rename(fs: Any, part: str, target: str) -> None:
    """Write a file to a store where incomplete files are visible."""
    remote = _part_of(target)
    try:
        fs.put_file(part, remote)
        fs.mv(remote, target)
    except BaseException:
        with suppress(Exception):  # must not hide the original error
            fs.rm(remote)
        raise
