"""Opens paths, and writes a file whole or not at all: its name, or its store's upload, comes after its last byte is checked."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from airflow_provider_cloudstore.batch.folder import is_local
from airflow_provider_cloudstore.compat import AirflowException, ObjectStoragePath, get_current_context
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.file_uris import segment
from airflow_provider_cloudstore.protocol.guards import validate_present
from airflow_provider_cloudstore.protocol.secrets import holds_credentials

_TRANSACTIONAL = ("s3", "s3a", "gs", "gcs")  # whose uploads nobody sees before they are committed


def object_path(given: Any, name: str) -> Any:
    """A path whose filesystem is known to exist.

    :param given: text, a ``pathlib.Path`` or an ``ObjectStoragePath``.
    :param name: the argument that it is from.
    :raises InvalidInputError: if no installed provider has its scheme, the path is invalid, or it holds credentials; nothing
        was sent.
    """
    text = str(given)
    scheme = text.partition("://")[0][:40] if "://" in text else "file"
    if holds_credentials(text):
        raise InvalidInputError(
            f"{name} holds a user and a password, which Airflow and its logs would show",
            advice=f"Store them in an Airflow connection, and write its id in their place: {scheme}://conn_id@bucket/...",
        )
    with suppress(ImportError, ValueError):  # the scheme's provider lacks a library; the scheme is unknown, or the path invalid
        path: Any = ObjectStoragePath(given) if isinstance(given, str) else given
        getattr(path, "fs", None)
        return path
    raise InvalidInputError(
        f"{name}: no filesystem for '{scheme}' opens it: check its spelling, or install the Airflow provider that brings one, "
        "such as apache-airflow-providers-amazon[s3fs] for s3"
    )


def resolve_target(target: Any, file_id: Any) -> tuple[Any, str]:
    """Where a download goes: the path, and its text for messages and XComs.

    :param target: text, a ``pathlib.Path`` or an ``ObjectStoragePath``; ``~`` and ``~user`` are expanded in a local path.
    :param file_id: names the file if the target ends with ``/``.
    :raises InvalidInputError: if it names no file, or as :func:`object_path`; nothing was sent.
    """
    is_path = hasattr(target, "open")
    text = str(target) if is_path else validate_present(target, "target")
    if text.endswith("/"):
        text += segment(file_id)
    if hasattr(target, "protocol") or "://" in text:
        path = object_path(target if is_path else text, "target")
    else:
        text = os.path.expanduser(text)
        path = Path(text)
    if is_local(path):
        _local_file(path)  # a mistake is reported before a wait
    return path, text


@contextmanager
def atomic_write(target: Any) -> Iterator[_LocalFile | _Upload]:
    """A file to write, which is at ``target`` once the block ends well; else what was there stays there."""
    if is_local(target):
        file: _LocalFile | _Upload = _LocalFile(_local_file(target))
    else:
        file = (_Upload if target.protocol in _TRANSACTIONAL else _RenamedFile)(target.fs, target.path)
    try:
        yield file
        file.commit()
    except BaseException:
        file.discard()
        raise


def _local_file(path: Any) -> Path:
    found = Path(os.path.realpath(getattr(path, "path", path)))  # what a link leads to is replaced, and not the link
    if found.exists() and not found.is_file():
        raise InvalidInputError(f"target '{found}' is not a file (end the path of a folder with '/')")
    return found


def _new_part(fs: Any, path: str) -> str:
    """The path of the part of a file, named by the try of the task that writes it; those of lower tries are removed.

    A lower try that still runs then fails when it completes its part. What is no task, or downloads a file twice, gets a
    random name.
    """
    folder, slash, name = path.rpartition("/")
    start = f"{folder}{slash}.{name.encode()[:100].decode(errors='ignore')}"
    ti: Any = None
    with suppress(RuntimeError, AirflowException):  # not in a task: Airflow 3, Airflow 2
        ti = get_current_context()["ti"]
    if ti:
        task = json.dumps([ti.dag_id, ti.run_id, ti.task_id, ti.map_index])
        by_task = f"{start}.{hashlib.sha256(task.encode()).hexdigest()[:12]}"
        for lower in range(1, ti.try_number):
            with suppress(FileNotFoundError):
                fs.rm(f"{by_task}-{lower}.part")
        if not fs.exists(part := f"{by_task}-{ti.try_number}.part"):
            return part
    return f"{start}.{secrets.token_hex(6)}.part"


class _LocalFile:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._part = path, Path(_new_part(LocalFileSystem(), str(path)))
        self._file = self._part.open("xb")
        if path.exists():
            os.fchmod(self._file.fileno(), path.stat().st_mode & 0o7777)
        self.write = self._file.write

    def restart(self) -> None:
        """Forget what was written."""
        self._file.seek(0)
        self._file.truncate()

    def commit(self) -> None:
        """Put it at its place, once its bytes are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)  # fails if a later try has removed the part

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._part.unlink(missing_ok=True)


class _Upload:
    """An upload that nobody sees before it is committed. Its bytes cannot be taken back: to restart is to open another."""

    write: Any

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self._open()

    def _open(self) -> None:
        self._file = self._fs.open(self._path, "wb", autocommit=False)
        self.write = self._file.write

    def restart(self) -> None:
        """Forget what was written."""
        if self._file.tell():
            self.discard()
            self._open()

    def commit(self) -> None:
        """Upload what is left, and complete the upload."""
        self._file.close()
        self._file.commit()

    def discard(self) -> None:
        """Give the upload up; what prevents that must not hide why."""
        with suppress(OSError):
            self._file.discard()
        self._file.closed = True  # fsspec would upload what is left when it is collected


class _RenamedFile(_Upload):
    """A file next to the target, for a store where all see what is not yet complete."""

    def _open(self) -> None:
        self._part = _new_part(self._fs, self._path)
        self._file = self._fs.open(self._part, "wb")
        self.write = self._file.write

    def commit(self) -> None:
        """Give it its name."""
        self._file.close()
        self._fs.mv(self._part, self._path)

    def discard(self) -> None:
        """Remove it; what prevents that must not hide why."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._fs.rm(self._part)
