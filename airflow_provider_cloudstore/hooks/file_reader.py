"""Reads ranges of a file, for ``cloudstore://``; ``hooks/targets.py`` writes whole files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_cloudstore.protocol.downloads import Download, FileVersion

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.downloads import DownloadClient


class FileReader:
    """Reads ranges of one version of a file, in any number of threads and forked processes; its link never leaves this object.

    Every range is a download of its own. All that ranges share, the last good link, is replaced and never changed.

    :param client: downloads the ranges.
    :param download: the file; with a version, only that one is read.
    :param on_retry: called with a log line before each pause.
    :ivar size: the file's size in bytes.
    :ivar version: the file's version.
    :raises CloudStoreError: if the file cannot be read, or the download host does not send its size.
    """

    def __init__(self, client: DownloadClient, download: Download, on_retry: Callable[[str], None]) -> None:
        self._client, self._download, self._on_retry = client, download, on_retry
        self._read(0, 1)
        self.size = self._download.size
        self.version = self._download.version or FileVersion(None, "", "", "")

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a range, up to the end of the file.

        :param start: its first byte.
        :param end: the byte after its last one.
        :raises FileChangedError: if the file was replaced since it was opened.
        """
        end = min(end, self.size)
        return self._read(start, end) if start < end else b""

    def _read(self, start: int, end: int) -> bytes:
        sink, part = _MemorySink(), self._download.part(start, end)
        self._client.run(part, sink, on_retry=self._on_retry)
        self._download = part  # its link is the latest that worked
        return bytes(sink)


class _MemorySink(bytearray):
    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear
