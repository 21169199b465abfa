"""A folder of receipts on a path, which stops a batch at those of a store's errors that no retry fixes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any

from airflow_provider_cloudstore import stores
from airflow_provider_cloudstore.exceptions import BatchStoppedError, InvalidInputError


def unusable(what: str, advice: str) -> BatchStoppedError:
    """The error for receipts that no retry fixes."""
    reason = f"the receipts: {what}; nothing more was sent"
    return BatchStoppedError(reason, operation="batch upload", cause="receipts", advice=advice)


class PathFolder:
    """A folder on a path: a ``pathlib.Path`` or Airflow's ``ObjectStoragePath``. Every method blocks.

    Every method raises ``BatchStoppedError`` for what no retry fixes: a local folder that is read-only, or a missing bucket.
    The folder need not exist.
    """

    def __init__(self, path: Any) -> None:
        self.place = str(path).rstrip("/")
        self.is_local = stores.is_local(path)  # then another worker may not see it
        self._path = path

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it does not exist."""
        with self._stops(name), suppress(FileNotFoundError):
            fs, path = stores.filesystem(self._path / name)
            fs.invalidate_cache()  # other tries write to the folder
            return bytes(fs.cat_file(path))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file: at every moment, either the earlier content is there or the new one, and complete."""
        with self._stops(name):
            stores.replace_file(self._path / name, content)

    def names(self) -> list[str]:
        """The names of the files; none if the folder does not exist yet."""
        with self._stops(""), suppress(FileNotFoundError):
            fs, path = stores.filesystem(self._path)
            fs.invalidate_cache()
            return [PurePosixPath(one).name for one in fs.ls(path, detail=False)]
        return []

    @contextmanager
    def _stops(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refused = isinstance(error, InvalidInputError)
            reason = error.reason if refused else stores.permanent_problem(self._path, error)
            if not reason:
                raise
            advice = "Fix that, and clear the task: it resumes; if nothing was sent yet, start a new DAG run."
            raise unusable(f"{self._path / name} cannot be used: {reason}", advice) from None
