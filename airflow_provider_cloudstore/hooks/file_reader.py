"""Reads blocks of an open file, for ``cloudstore://``; ``stores.py`` writes whole files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pendulum

from airflow_provider_cloudstore.protocol.download_requests import Download, FileVersion

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.streaming import DownloadClient
    from airflow_provider_cloudstore.protocol.results import DownloadLink
    from airflow_provider_cloudstore.protocol.settings import Settings

_LINK_SECONDS = 10.0
"""How old a link may be that another block is read with."""


class FileReader:
    """Reads blocks of one version of a file, in any number of threads: each is a download of its own, and they share a link.

    :param client: downloads the blocks.
    :param file_id: the file.
    :param settings: the connection.
    :param version: the version to read; None for the current one.
    :param on_retry: called with a log line before each pause.
    :ivar size: the file's size in bytes.
    :ivar version: the file's version.
    :raises CloudStoreError: if the file cannot be read, or the download host does not support ranges.
    """

    def __init__(
        self,
        client: DownloadClient,
        file_id: str,
        settings: Settings,
        version: FileVersion | None,
        on_retry: Callable[[str], None],
    ) -> None:
        self._client, self._on_retry = client, on_retry
        self._file_id, self._settings = file_id, settings
        self._link: DownloadLink | None = None
        opened, _ = self._download(0, 1, version)
        self.version = opened.version or FileVersion(0, "", "")
        self.size = self.version.total or 0

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a block, up to the end of the file.

        :param start: its first byte.
        :param end: the byte after its last one.
        :raises FileChangedError: if the file was replaced since it was opened.
        """
        end = min(end, self.size)
        return self._download(start, end, self.version)[1] if start < end else b""

    def _download(self, start: int, end: int, version: FileVersion | None) -> tuple[Download, bytes]:
        block, sink = Download(self._file_id, self._settings, block=range(start, end), version=version), _MemorySink()
        link = self._link
        if link and (pendulum.now("UTC") - link.created_at).total_seconds() > _LINK_SECONDS:
            link = None
        self._link = self._client.run(block, sink, link, on_retry=self._on_retry)
        return block, bytes(sink)


class _MemorySink(bytearray):
    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear
