"""A folder of receipts on a path: how a file is replaced there as a whole, and which of a store's errors no retry mends."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from airflow_provider_cloudstore.batch.recording import unusable

_LOCAL = ("", "file", "local")
# Here a file appears when its only request is complete, and a folder is only a prefix of names, which needs no creation.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "oss", "memory")
_MISSING_BUCKET = {"FileNotFoundError", "ResourceNotFoundError"}  # the second is Azure's, which adlfs may wrap
_PERMANENT_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


def is_local(path: Any) -> bool:
    """Whether a ``pathlib.Path`` or an ``ObjectStoragePath`` is on this machine."""
    return getattr(path, "protocol", "") in _LOCAL


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``.

    Every method raises ``BatchStoppedError`` for what no retry mends: a local folder that is read-only, or a missing bucket.

    :param path: the folder, which need not exist.
    """

    def __init__(self, path: Any) -> None:
        self.is_local = is_local(path)
        self._path: Any = Path(getattr(path, "path", path)) if self.is_local else path
        self._fs: Any = None if self.is_local else path.fs
        self._is_object_store = not self.is_local and path.protocol in _OBJECT_STORES

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""
        with self._stops(name), suppress(FileNotFoundError):
            if self.is_local:
                return bytes((self._path / name).read_bytes())
            self._fs.invalidate_cache()  # other tries write to the folder
            return bytes(self._fs.cat_file((self._path / name).path))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file, and create the folder in a store that has folders."""
        with self._stops(name):
            if self._is_object_store:
                self._fs.pipe_file((self._path / name).path, content)
            else:
                self._path.mkdir(parents=True, exist_ok=True)
                self._write_and_rename(name, content)

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""
        with self._stops(""), suppress(FileNotFoundError):
            if self.is_local:
                return os.listdir(self._path)
            self._fs.invalidate_cache()
            return [PurePosixPath(path).name for path in self._fs.ls(self._path.path, detail=False)]
        return []

    def _write_and_rename(self, name: str, content: bytes) -> None:
        unfinished, complete = self._path / f".{name}.{uuid.uuid4().hex[:8]}", self._path / name
        try:
            if self.is_local:
                with unfinished.open("xb") as sink:
                    sink.write(content)
                    sink.flush()
                    os.fsync(sink.fileno())
                unfinished.replace(complete)
            else:
                self._fs.pipe_file(unfinished.path, content)
                self._fs.mv(unfinished.path, complete.path)
        except OSError:
            with suppress(OSError):  # what prevents this must not hide why
                unfinished.unlink()
            raise

    @contextmanager
    def _stops(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.is_local and isinstance(error, OSError) and error.errno in _PERMANENT_ERRORS:
                reason = error.strerror or type(error).__name__
            elif self._is_object_store and _MISSING_BUCKET & {type(error).__name__, type(error.__cause__).__name__}:
                reason = "its bucket or container does not exist"
            else:
                raise
            advice = "Mend that, and clear the task: it resumes; if nothing was sent yet, start a new DAG run."
            raise unusable(f"{self._path / name} cannot be used: {reason}", advice) from None
