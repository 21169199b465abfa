"""A folder of receipts on a path: how a file is replaced there as a whole, and which of a store's errors no retry mends."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from airflow_provider_cloudstore.batch.receipts import unusable
from airflow_provider_cloudstore.hooks.targets import is_local

# Here a file appears when its only request is complete, and a folder is only a prefix of names, which needs no creation.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "oss", "memory")
_PERMANENT_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``.

    Every method raises ``BatchStoppedError`` for what no retry mends: a local folder that is read-only, or a missing bucket.

    :param path: the folder, which need not exist.
    """

    def __init__(self, path: Any) -> None:
        self._path: Any = Path(getattr(path, "path", path)) if is_local(path) else path
        self._fs: Any = None if is_local(path) else path.fs
        self._is_object_store = not is_local(path) and path.protocol in _OBJECT_STORES

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""
        with self._stops(name), suppress(FileNotFoundError):
            if self._fs is None:
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
            if self._fs is None:
                return os.listdir(self._path)
            self._fs.invalidate_cache()
            return [PurePosixPath(path).name for path in self._fs.ls(self._path.path, detail=False)]
        return []

    def _write_and_rename(self, name: str, content: bytes) -> None:
        unfinished, complete = self._path / f".{name}.{uuid.uuid4().hex[:8]}", self._path / name
        try:
            if self._fs is None:
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
            if self._fs is None and isinstance(error, OSError) and error.errno in _PERMANENT_ERRORS:
                reason = error.strerror or type(error).__name__
            elif self._is_object_store and _is_missing_bucket(error):
                reason = "its bucket or container does not exist"
            else:
                raise
            advice = "Mend that and clear the task: it resumes."
            raise unusable(f"{self._path / name} cannot be used: {reason}", advice) from None


def _is_missing_bucket(error: BaseException | None) -> bool:
    """Whether a store reports that the bucket does not exist; adlfs wraps Azure's own error in a ``RuntimeError``."""
    while error is not None:
        if isinstance(error, FileNotFoundError) or type(error).__name__ == "ResourceNotFoundError":
            return True
        error = error.__cause__
    return False
