"""Streams a download into a sink, for workers; ``protocol/download_requests.py`` decides what to request and what to accept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.exchange import Exchange
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, pause_before_retry
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.results import DownloadLink

CHUNK = 256 * 1024


class Sink(Protocol):
    """Where a download is written."""

    def restart(self) -> None:
        """Discard what was written."""

    def write(self, data: bytes, /) -> Any:
        """Write the next bytes."""


class DownloadClient:
    """Carries out downloads, in any number of threads, over the sessions of the calls.

    :param client: has the sessions and the connection's timeout, which limits the wait for each response and for each piece of
        its body. Five minutes limit attempts and pauses without 64 KiB of progress.
    :param create_link: creates a link; its errors are final.
    :param time_left: returns the seconds until the task's ``execution_timeout``: no pause exceeds them.
    :param count: is told how many bytes each download received.
    """

    def __init__(
        self,
        client: BlockingClient,
        create_link: Callable[[str], DownloadLink],
        *,
        time_left: Callable[[], float] = lambda: math.inf,
        count: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._client = client
        self._create_link = create_link
        self._time_left, self._count = time_left, count

    def run(
        self, download: Download, sink: Sink, link: DownloadLink | None = None, *, on_retry: Callable[[str], None]
    ) -> DownloadLink:
        """Write the file, or the block, into ``sink``. Each attempt takes a new link.

        :param sink: where to; it is restarted whenever the file starts over.
        :param link: a link that was just created, for the first attempt.
        :param on_retry: called with a log line before each pause.
        :returns: the link that worked.
        :raises CloudStoreError: if the download failed permanently, or ran out of attempts or time.
        :raises OSError: if the sink does.
        """
        progressed_at = time.monotonic()
        try:
            while True:
                link = link or self._create_link(download.file_id)
                try:
                    self._attempt(download, link, sink)
                    return link
                except CloudStoreError as error:
                    if download.attempts == 1:
                        progressed_at = time.monotonic()
                    time_left = min(self._time_left(), progressed_at + DEFAULT_BUDGET - time.monotonic())
                    pause = pause_before_retry(download, error, time_left, on_retry)
                    if pause is None:
                        raise
                link = None
                time.sleep(pause)
        finally:
            self._count(download.received)

    def _attempt(self, download: Download, link: DownloadLink, sink: Sink) -> None:
        request = download.start_attempt(link)
        while True:
            with Exchange(self._client.session, self._client.settings.timeout) as exchange:
                head = exchange.open(request)
                if isinstance(head, TransportFailure):
                    return download.finish_attempt(head)
                if not download.follow_redirect(head):
                    return self._read_body(download, sink, exchange, head)
            request = download.request()

    @staticmethod
    def _read_body(download: Download, sink: Sink, exchange: Exchange, head: Response) -> None:
        download.accept_head(head)
        if download.position == 0:
            sink.restart()
        while (wanted := download.bytes_wanted) and (piece := exchange.read(int(min(CHUNK, wanted)))):
            if isinstance(piece, TransportFailure):
                return download.finish_attempt(piece)
            download.accept_body(piece)
            sink.write(piece)
        return download.finish_attempt(None)
