"""Files of the service as a read-only filesystem: ``cloudstore://CONNECTION@/FILE_ID`` for Airflow, fsspec and pandas.

Airflow finds it by the provider's ``filesystems``, everybody else by fsspec's entry point. A link is made when bytes are needed;
it stays in the reader, which neither ``repr`` nor pickle looks into.
"""

from __future__ import annotations

import errno
import os
from typing import Any, NoReturn
from urllib.parse import urlsplit

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.errors import NotFoundError

schemes = ["cloudstore"]


def get_fs(conn_id: str | None, storage_options: dict[str, Any] | None = None) -> CloudStoreFileSystem:
    """The filesystem of a connection, as Airflow asks for it.

    :param conn_id: the connection; None for ``cloudstore_default``.
    :param storage_options: more arguments of :class:`CloudStoreFileSystem`.
    """
    return CloudStoreFileSystem(**{"conn_id": conn_id, **(storage_options or {})})


class CloudStoreFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """Reads files by their ids, which are the paths; there is nothing to list, and nothing can be written.

    :param conn_id: the Airflow connection; None for ``cloudstore_default``.
    """

    protocol = "cloudstore"
    root_marker = ""
    cachable = False  # an Airflow connection may change, and a hook is one thread's

    def __init__(self, conn_id: str | None = None, **storage_options: Any) -> None:
        super().__init__(conn_id=conn_id, **storage_options)
        self.conn_id = conn_id or CloudStoreHook.default_conn_name

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(stringify_path(path))
        _, scheme, rest = text.rpartition("cloudstore://")
        return (rest.partition("@")[2] if scheme and "@" in rest.partition("/")[0] else rest).strip("/")

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
        file_id = self._strip_protocol(path)
        with self._open(file_id, cache_type="none") as file:
            return dict(file.details)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is such a file. Unlike fsspec's own, it takes no other error for "no"."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        """No: the service has folders, but no operation that lists them."""
        return False

    def isfile(self, path: str) -> bool:
        """As :meth:`exists`."""
        return self.exists(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The file itself: a folder cannot be listed.

        :param detail: whether to return its :meth:`info` and not its name alone.
        """
        found = self.info(path)
        return [found if detail else found["name"]]

    def ukey(self, path: str) -> str:
        """What changes with the file's content, as far as the download's host tells."""
        found = self.info(path)
        return f"{found['size']}-{found['etag']}-{found['last_modified']}"

    def get_file(
        self, rpath: str, lpath: Any = None, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Download a file to a local path, whole or not at all.

        :param rpath: the file's id.
        :param lpath: the local path, or an open file.
        :param callback: is told the size.
        :param outfile: an open file.
        """
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **kwargs)
            return
        with CloudStoreHook(self.conn_id) as hook:
            file = _missing_is_not_found(rpath, lambda: hook.download(self._strip_protocol(rpath), os.fspath(lpath)))
        callback.set_size(file.bytes)
        callback.absolute_update(file.bytes)

    def _refuse_writing(self, path: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise OSError(errno.EROFS, "cloudstore:// can only be read", path)

    mkdir = makedirs = rmdir = touch = rm_file = _rm = rm = cp_file = mv = put_file = _refuse_writing

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> CloudStoreFile:
        if mode != "rb":
            self._refuse_writing(path)
        kwargs.pop("autocommit", None)
        return CloudStoreFile(self, path, block_size=block_size or "default", **kwargs)


class CloudStoreFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of the service, read in blocks; each is one request, and the link is replaced when it has ended.

    :param kwargs: what fsspec's buffered files take: ``block_size``, ``cache_type`` and the like.
    """

    def __init__(self, fs: CloudStoreFileSystem, path: str, **kwargs: Any) -> None:
        self._hook = CloudStoreHook(fs.conn_id)
        self._reader = _missing_is_not_found(path, lambda: self._hook.open_file(path))
        kwargs.pop("size", None)
        super().__init__(fs, path, size=self._reader.size, **kwargs)
        version = self._reader.version
        self.details = {
            "name": path,
            "size": self.size,
            "type": "file",
            "etag": version.etag,
            "last_modified": version.last_modified,
        }

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(_missing_is_not_found(self.path, lambda: self._reader.read(start, end)))

    def close(self) -> None:
        """Close the connections."""
        if not self.closed:
            self._reader.close()
            self._hook.close()
        super().close()


def _missing_is_not_found(path: str, work: Any) -> Any:
    try:
        return work()
    except NotFoundError as error:
        reason = str(error)
    raise FileNotFoundError(errno.ENOENT, reason, path)
