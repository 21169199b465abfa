"""Files of the service as a read-only filesystem: ``cloudstore://CONNECTION@/FILE_ID`` for Airflow, fsspec and pandas.

Airflow finds it by the provider's ``filesystems``, everybody else by fsspec's entry point. A link is made when bytes are needed;
it stays in the reader, which neither ``repr`` nor pickle looks into.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

from fsspec.callbacks import NoOpCallback
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from airflow_provider_cloudstore.exceptions import InvalidInputError, NotFoundError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.file_uris import file_name, id_of, path_of, segment

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
        return f"{cls.root_marker}{_name(path)}"

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
        :raises io.UnsupportedOperation: for the root.
        """
        with self._open(path, cache_type="none") as file:
            return dict(file.details)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is such a file. Unlike fsspec's own, it takes no other error for "no"."""
        try:
            return bool(_name(path) and self.info(path))
        except FileNotFoundError:
            return False

    def isdir(self, path: str) -> bool:
        """Only of the root: the service has folders, but no operation that lists them."""
        return not _name(path)

    def isfile(self, path: str) -> bool:
        """As :meth:`exists`."""
        return self.exists(path)

    def modified(self, path: str) -> datetime:
        """When the file was last modified, in UTC, as the download's host says.

        :raises io.UnsupportedOperation: if it does not.
        """
        text = self.info(path)["last_modified"]
        with suppress(ValueError, OverflowError):  # not a date
            moment = parsedate_to_datetime(text)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        raise io.UnsupportedOperation(f"the download host does not say when '{path}' was modified (Last-Modified)")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The file itself: a folder cannot be listed.

        :param detail: whether to return its :meth:`info` and not its name alone.
        :raises io.UnsupportedOperation: for the root.
        """
        found = self.info(path)
        return [found if detail else found["name"]]

    def walk(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """The file itself; fsspec's own would walk an empty root.

        :raises io.UnsupportedOperation: for the root.
        """
        _file_id(_name(path))
        return super().walk(path, *args, **kwargs)

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """The file itself, if there is one.

        :raises io.UnsupportedOperation: for a pattern.
        """
        return self.find(_refuse_pattern(path), **kwargs)

    def expand_path(self, path: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The paths of files.

        :raises io.UnsupportedOperation: for a pattern and for the root.
        """
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        return sorted({self._strip_protocol(segment(_file_id(_refuse_pattern(one)))) for one in paths})

    def cat(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """The content of a file, or of several by their names.

        :param path: a file's id, or a list.
        """
        found = super().cat(path, *args, **kwargs)
        return {_name(path): content for path, content in found.items()} if isinstance(found, dict) else found

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = _NO_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Download files, each whole or not at all. In a folder, a file's name is its id, percent-encoded.

        :param rpath: a file's id, or a list.
        :param lpath: a local path, an open file, or a list of as many; a folder if it ends with ``/`` or is one, and always for a
            list of ids.
        :param recursive: ignored, as ``maxdepth``: there are no folders.
        :param callback: is told the progress.
        :raises InvalidInputError: if the id cannot be a file's name.
        """
        is_one = isinstance(rpath, (str, os.PathLike))
        ids = [_file_id(_refuse_pattern(path)) for path in ([rpath] if is_one else rpath)]
        if isinstance(lpath, (list, tuple)) or hasattr(lpath, "write"):
            targets = list(lpath) if isinstance(lpath, (list, tuple)) else [lpath]
        else:
            targets = self._targets(ids, os.fspath(lpath), is_one)
        if len(ids) != len(targets):
            raise ValueError(f"{len(ids)} files cannot be written to {len(targets)} paths")
        super().get([segment(file_id) for file_id in ids], targets, callback=callback, **kwargs)

    @staticmethod
    def _targets(ids: list[str], target: str, is_one: bool) -> list[str]:
        if is_one and not target.endswith(("/", os.sep)) and not LocalFileSystem().isdir(target):
            return [target]
        return [os.path.join(target, file_name(file_id)) for file_id in ids]

    def get_file(self, rpath: str, lpath: Any = None, callback: Any = _NO_CALLBACK, outfile: Any = None, **kwargs: Any) -> None:
        """Download a file to a local path, whole or not at all.

        :param rpath: the file's id.
        :param lpath: the local path, or an open file.
        :param callback: is told the size.
        :param outfile: an open file.
        """
        if outfile is not None or hasattr(lpath, "write"):
            with self._open(rpath) as source:
                callback.set_size(source.size)
                shutil.copyfileobj(source, lpath if outfile is None else outfile)
                callback.absolute_update(source.size)
            return
        path = _name(rpath)
        with CloudStoreHook(self.conn_id) as hook:
            file = _missing_is_not_found(path, lambda: hook.download(_file_id(path), os.fspath(lpath)))
        callback.set_size(file.bytes)
        callback.absolute_update(file.bytes)

    def _refuse_writing(self, path: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise OSError(errno.EROFS, "cloudstore:// can only be read", path)

    mkdir = makedirs = rmdir = touch = rm_file = rm = pipe_file = pipe = _refuse_writing

    def _refuse_writing_to(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse_writing(target)

    cp_file = copy = mv = put_file = put = _refuse_writing_to

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> CloudStoreFile:
        if mode != "rb":
            self._refuse_writing(path)
        kwargs.pop("autocommit", None)
        return CloudStoreFile(self, _name(path), block_size=block_size or "default", **kwargs)


class CloudStoreFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of the service, read in blocks; each is one request, and the link is replaced when it has ended.

    Any number of threads and forked processes may read it. It has one position, as every file; but a read that follows a seek in
    the same thread begins there, whatever other threads do, because readers such as DuckDB seek and read in several threads.

    :param version: the version to read; None for the current one.
    :param kwargs: what fsspec's buffered files take: ``block_size``, ``cache_type`` and the like.
    """

    cache: Any

    def __init__(self, fs: CloudStoreFileSystem, path: str, *, version: Any = None, **kwargs: Any) -> None:
        self._sought: dict[int, int] = {}  # where threads' next reads begin, if no other read has moved the position since
        self._locks: dict[int, threading.RLock] = {}  # one per process: a fork may copy one that a thread holds
        self._pid = os.getpid()
        file_id = _file_id(path)
        self._hook = CloudStoreHook(fs.conn_id)
        self._reader = _missing_is_not_found(path, lambda: self._hook.open_file(file_id, version))
        kwargs.pop("size", None)
        super().__init__(fs, path, size=self._reader.size, **kwargs)
        version = self._reader.version
        if self.size:  # a copy of this file, unpickled in another process, reads the same version
            self.kwargs["version"] = version
        self.details = {
            "name": path,
            "size": self.size,
            "type": "file",
            "etag": version.etag,
            "last_modified": version.last_modified,
        }

    @property
    def loc(self) -> int:
        """Where this thread's next read begins."""
        return self._sought.get(threading.get_ident(), self._position)

    @loc.setter
    def loc(self, position: int) -> None:
        self._sought.pop(threading.get_ident(), None)
        self._position = position

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
            if threading.get_ident() in self._sought:
                self.loc = self.loc
            else:
                self._sought.clear()
            return bytes(super().read(length))

    def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        """The bytes up to a delimiter, which no other thread gets as well."""
        with self._exclusive():
            found = bytes(super().readuntil(*args, **kwargs))
            self._sought.pop(threading.get_ident(), None)
            return found

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        pid = os.getpid()
        with self._locks.setdefault(pid, threading.RLock()):
            if self._pid != pid:  # forked: a thread that was changing the cache does not exist here
                self._pid, self._sought = pid, {}
                self.cache = self.cache and type(self.cache)(self.blocksize, self._fetch_range, self.size)
            yield

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(_missing_is_not_found(self.path, lambda: self._reader.read(start, end)))

    def close(self) -> None:
        """Close the connections."""
        if not self.closed:
            self._hook.close()
        super().close()


def _name(path: Any) -> str:
    return path_of(str(os.fspath(path) if isinstance(path, os.PathLike) else path))


def _file_id(path: str) -> str:
    file_id = id_of(path)
    if not file_id:
        raise io.UnsupportedOperation("cloudstore:// has no folders, and cannot list files: a path is the id of one file")
    try:
        segment(file_id)
    except InvalidInputError:
        raise FileNotFoundError(errno.ENOENT, "no file can have this id", path) from None
    return file_id


def _refuse_pattern(path: Any) -> str:
    if set("*?[").intersection(str(path)):
        raise io.UnsupportedOperation(f"cloudstore:// cannot list files: percent-encode '*', '?' and '[' in the id {str(path)!r}")
    return _name(path)


def _missing_is_not_found(path: str, work: Any) -> Any:
    try:
        return work()
    except NotFoundError as error:
        reason = error.reason
    raise FileNotFoundError(errno.ENOENT, reason, path)
