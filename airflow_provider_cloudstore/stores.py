"""Turns what users write into paths, and writes files atomically, on this machine or in a store."""

from __future__ import annotations

import errno
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from airflow_provider_cloudstore.compat import ObjectStoragePath
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.guards import validate_text

_LOCAL = ("", "file", "local")
# Here, an uploaded file appears when it is complete, and a folder is a name prefix that needs no creation.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "oss", "memory")
# A colon that is followed by an "@" and not by a port: s3://KEY:SECRET@bucket/key. The secret may contain a raw "/" or "@".
# A user alone is the id of an Airflow connection: s3://aws_default@bucket/key.
_CREDENTIALS = re.compile(r"://[^/@]*:(?!\d{1,5}/).*@", re.DOTALL)
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EACCES)  # fsync, by a mounted share


def protocol_of(path: Any) -> str:
    """Return the scheme of an ``ObjectStoragePath``; empty for a ``pathlib.Path``."""
    return getattr(path, "protocol", "")


def is_local(path: Any) -> bool:
    """Return whether a ``pathlib.Path`` or an ``ObjectStoragePath`` is on this machine."""
    return protocol_of(path) in _LOCAL


def filesystem(path: Any) -> tuple[Any, str]:
    """Return the fsspec filesystem of a ``Path`` or an ``ObjectStoragePath``, and the path in it; local links are resolved."""
    from fsspec.implementations.local import LocalFileSystem

    if is_local(path):
        return LocalFileSystem(), os.path.realpath(getattr(path, "path", path))
    return path.fs, path.path


def object_path(given: Any, name: str) -> Any:
    """Return a path object, after a check that its filesystem can be used.

    :param given: text, a ``pathlib.Path`` or an ``ObjectStoragePath``.
    :raises InvalidInputError: if it is not a path, holds credentials, or no installed provider has its scheme; nothing was sent.
    """
    if not isinstance(given, (str, os.PathLike)) and not hasattr(given, "open"):
        raise InvalidInputError(f"{name} must be a path, not a {type(given).__name__}")
    text = str(given)
    scheme = text.partition("://")[0][:40] if "://" in text else "file"
    if _CREDENTIALS.search(text):
        raise InvalidInputError(
            f"{name} holds a user and a password, which Airflow and its logs would show",
            advice=f"Store them in an Airflow connection, and write its id in their place: {scheme}://conn_id@bucket/...",
        )
    try:
        path: Any = ObjectStoragePath(given) if isinstance(given, str) else given
        getattr(path, "fs", None)  # opens the filesystem
    except (ImportError, ValueError):  # its provider lacks a library; the scheme is unknown, or the path is invalid
        raise InvalidInputError(
            f"{name}: no filesystem is installed for '{scheme}': check the spelling, or install the Airflow provider for it, "
            "such as apache-airflow-providers-amazon[s3fs] for s3"
        ) from None
    return path


def resolve_target(target: Any, file_id: Any) -> tuple[Any, str]:
    """Return the path to which a download is written, and the path's text for messages and XComs.

    :param target: text, a ``pathlib.Path`` or an ``ObjectStoragePath``; ``~`` and ``~user`` are expanded in a local path.
    :param file_id: names the file if the target ends with ``/``.
    :raises InvalidInputError: if it does not name a file, or if :func:`object_path` rejects it; nothing was sent.
    """
    text = validate_text(str(target) if isinstance(target, os.PathLike) or hasattr(target, "open") else target, "target")
    if text.endswith("/"):
        name = quote(validate_text(file_id, "file_id"), safe="")
        target, text = target / name if hasattr(target, "protocol") else target, text + name
    if not hasattr(target, "protocol"):
        text = os.path.expanduser(text)
        target = text if "://" in text else Path(text)
    path = object_path(target, "target")
    if is_local(path) and os.path.exists(found := filesystem(path)[1]) and not os.path.isfile(found):
        raise InvalidInputError(f"target '{found}' is not a file (end the path of a folder with '/')")
    return path, text


@contextmanager
def atomic_write(path: Any) -> Iterator[BinaryIO]:
    """Open a local file that becomes the file at a path if the block ends without an error; else the path stays unchanged."""
    if is_local(path):
        with _renamed_part(filesystem(path)[1]) as file:
            yield file
        return
    with tempfile.NamedTemporaryFile() as temporary:
        yield cast("BinaryIO", temporary)
        temporary.flush()
        _upload(temporary.name, path)


@contextmanager
def _renamed_part(target: str) -> Iterator[BinaryIO]:
    """Open a part file next to a local target, which replaces the target once its bytes are on the disk."""
    part = _part_of(target)
    Path(part).parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(part, "x+b") as file:
            with suppress(OSError):  # the target does not exist yet, or the mount has no modes
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o7777)
            yield file
            file.flush()
            _sync(file.fileno())
        Path(part).replace(target)
    except BaseException:
        with suppress(OSError):  # it must not hide the original error
            Path(part).unlink()
        raise


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def _upload(source: str, path: Any) -> None:
    """Upload a complete file: in an object store, it appears when it is complete; elsewhere, a part is renamed."""
    if protocol_of(path) in OBJECT_STORES:
        # By default, s3fs holds ten blocks of 50 MiB in memory, twice.
        options = {"max_concurrency": 1} if protocol_of(path) in ("s3", "s3a") else {}
        path.fs.put_file(source, path.path, **options)
        return
    part = _part_of(path.path)
    with suppress(PermissionError):  # some servers refuse it though the folder exists; if not, writing fails
        path.fs.makedirs(path.path.rpartition("/")[0], exist_ok=True)
    try:
        path.fs.put_file(source, part)
        path.fs.mv(part, path.path)
    except BaseException:
        with suppress(Exception):  # it must not hide the original error
            path.fs.rm(part)
        raise


def _part_of(path: str) -> str:
    """Return a path in the same folder, with a random name."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}.{secrets.token_hex(8)}.part"
