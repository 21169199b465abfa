"""Files of the service as a read-only filesystem: ``cloudstore://CONNECTION@/FILE_ID`` for Airflow, fsspec and pandas.

Airflow finds it by the provider's ``filesystems``, everybody else by fsspec's entry point. A link is made when bytes are needed;
it stays in the reader, which neither ``repr`` nor pickle looks into.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from fsspec.callbacks import NoOpCallback
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from airflow_provider_cloudstore.exceptions import NotFoundError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.file_uris import path_of

schemes = ["cloudstore"]

_NO_CALLBACK = NoOpCallback()


def get_fs(conn_id: str | None, storage_options: dict[str, Any] | None = None) -> CloudStoreFileSystem:
    """The filesystem of a connection, as Airflow asks for it.

    :param conn_id: the connection; None for ``cloudstore_default``.
    :param storage_options: more arguments of :class:`CloudStoreFileSystem`.
    """
    return CloudStoreFileSystem(**{"conn_id": conn_id, **(storage_options or {})})


class CloudStoreFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """Reads files by their ids, which are the paths, percent-encoded; nothing can be listed or written.

    :param conn_id: the Airflow connection; None for ``cloudstore_default``.
    """

    protocol = "cloudstore"
    root_marker = "/"
    cachable = False  # an Airflow connection may change

    def __init__(self, conn_id: str | None = None, **storage_options: Any) -> None:
        super().__init__(conn_id=conn_id, **storage_options)
        self.conn_id = conn_id or CloudStoreHook.default_conn_name

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return f"{cls.root_marker}{path_of(str(os.fspath(path)))}"

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        conn_id = urlsplit(url).netloc.rpartition("@")[0]
        return {"conn_id": conn_id} if conn_id else {}

    @property
    def fsid(self) -> str:
        """What tells one filesystem from another: the connection."""
        return f"cloudstore-{self.conn_id}"

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """The size and version of a file; it takes a link and one small request.

        :raises FileNotFoundError: if there is no such file.
        """
        if self.isdir(path):
            return {"name": self.root_marker, "size": 0, "type": "directory"}
        with self.open(path, cache_type="none") as file:
            return dict(file.details)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is such a file. Unlike fsspec's own, it takes no other error for "no"."""
        try:
            return bool(self.info(path))
        except FileNotFoundError:
            return False

    def isdir(self, path: str) -> bool:
        """Only of the root: the service has folders, but no operation that lists them."""
        return bool(self._strip_protocol(path) == self.root_marker)

    def isfile(self, path: str) -> bool:
        """As :meth:`exists`, except for the root."""
        return not self.isdir(path) and self.exists(path)

    def modified(self, path: str) -> datetime:
        """When the file was last modified, in UTC, as the download's host says.

        :raises NotImplementedError: if it does not.
        """
        try:
            return parsedate_to_datetime(self.info(path)["last_modified"]).astimezone(UTC)
        except ValueError:  # not a date
            raise NotImplementedError(f"the download host does not say when '{path}' was modified (Last-Modified)") from None

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The file itself: a folder cannot be listed.

        :param detail: whether to return its :meth:`info` and not its name alone.
        :raises NotImplementedError: for the root. fsspec takes an :exc:`OSError` for an empty folder.
        """
        if self.isdir(path):
            raise NotImplementedError("cloudstore:// cannot list files: a path is the id of one file, in which * ? [ are encoded")
        found = self.info(path)
        return [found if detail else found["name"]]

    def get_file(self, rpath: str, lpath: Any, callback: Any = _NO_CALLBACK, **kwargs: Any) -> None:
        """Download a file to a local path, whole or not at all.

        :param rpath: the file's id.
        :param lpath: the local path.
        :param callback: is told the size.
        """
        path = self._strip_protocol(rpath)
        with CloudStoreHook(self.conn_id) as hook, _missing_is_not_found(path):
            file = hook.download(_file_id(path), os.fspath(lpath))
        callback.set_size(file.bytes)
        callback.absolute_update(file.bytes)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> CloudStoreFile:
        if mode != "rb":
            raise OSError(errno.EROFS, "cloudstore:// can only be read", path)
        return CloudStoreFile(self, path, block_size=block_size or "default", **kwargs)


class CloudStoreFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of the service, read in blocks, each of which is one request.

    Any number of threads may read it. It has one position, as every file; but a read that follows a seek in the same thread
    begins there, whatever other threads do, because readers such as DuckDB seek and read in several threads.

    :param version: the version to read; None for the current one.
    :param kwargs: what fsspec's buffered files take: ``block_size``, ``cache_type`` and the like.
    """

    def __init__(self, fs: CloudStoreFileSystem, path: str, *, version: Any = None, **kwargs: Any) -> None:
        self._sought: dict[int, int] = {}  # where threads' next reads begin, if no other read has moved the position since
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._hook = CloudStoreHook(fs.conn_id)
        with _missing_is_not_found(path):
            self._reader = self._hook.open_file(_file_id(path), version)
        kwargs.pop("size", None)
        super().__init__(fs, path, size=self._reader.size, **kwargs)
        version = self._reader.version
        self.kwargs["version"] = version  # a copy of this file, unpickled in another process, reads the same version
        self.details = {
            "name": path,
            "size": self.size,
            "type": "file",
            "etag": version.etag,
            "last_modified": version.last_modified,
        }

    def seek(self, loc: int, whence: int = 0) -> int:
        """Set the position, for this thread's next read whatever other threads do.

        :param loc: bytes from the start, or from where ``whence`` says.
        """
        with self._exclusive():
            position = int(super().seek(loc, whence))
            if position < self.size:  # else it only asks for the size, and another thread may go on
                self._sought[threading.get_ident()] = position
            return position

    def read(self, length: int = -1) -> bytes:
        """The next bytes.

        :param length: how many; the rest if negative.
        """
        with self._exclusive():
            position = self._sought.pop(threading.get_ident(), None)
            if position is None:
                self._sought.clear()
            else:
                self.loc = position
            return bytes(super().read(length))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """The lock; a thread that does not exist in a forked process may hold it for ever there.

        :raises OSError: in a forked process.
        """
        if self._pid != os.getpid():
            raise OSError(errno.EBADF, "a forked process cannot read an open file: open or unpickle it there", self.path)
        with self._lock:
            yield

    def _fetch_range(self, start: int, end: int) -> bytes:
        with _missing_is_not_found(self.path):
            return self._reader.read(start, end)

    def close(self) -> None:
        """Close the connections."""
        if not self.closed:
            self._hook.close()
        super().close()


def _file_id(path: str) -> str:
    return unquote(path.removeprefix(CloudStoreFileSystem.root_marker))


@contextmanager
def _missing_is_not_found(path: str) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, error.reason, path) from None
