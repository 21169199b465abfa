"""Streams a download into a sink, for workers; ``protocol/download_requests.py`` decides what to request and what to accept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_cloudstore.clients.blocking import CHUNK, BlockingClient, Exchange
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET, pause_before_retry
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.results import DownloadLink

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where a download is written."""

    def restart(self) -> None:
        """Discard what was written."""

    def write(self, data: bytes, /) -> Any:
        """Write the next bytes."""


@dataclass(frozen=True)
class DownloadClient:
    """Carries out downloads over the sessions of the calls.

    :param client: has the sessions and the connection's timeout, which limits the wait for each response and for each piece of
        its body.
    :param create_link: creates a link; its errors are final.
    :param longest_pause: returns the seconds that no pause may exceed.
    :param count: is told how many bytes each download received.
    :param on_retry: called with a log line before each pause.
    :param on_report: called with a log line every 30 seconds of a download.
    """

    client: BlockingClient
    create_link: Callable[[str], DownloadLink]
    longest_pause: Callable[[], float] = lambda: DEFAULT_BUDGET
    count: Callable[[int], None] = lambda count: None
    on_retry: Callable[[str], None] = log.warning
    on_report: Callable[[str], None] = log.info
    clock: Callable[[], float] = time.monotonic

    def run(self, download: Download, sink: Sink, link: DownloadLink | None = None) -> None:
        """Write the file into ``sink``. Each attempt takes a new link.

        :param sink: is restarted whenever the file starts over.
        :param link: a link that was just created, for the first attempt.
        :raises CloudStoreError: if the download failed permanently, or ran out of attempts or time.
        :raises OSError: if the sink does.
        """
        download.report(self.clock())  # from here on, 30 seconds
        try:
            while True:
                link = link or self.create_link(download.file_id)
                try:
                    return self._attempt(download, link, sink)
                except CloudStoreError as error:
                    left = self.longest_pause()
                    pause = pause_before_retry(error, download.attempts, left, self.on_retry, download.then)
                    if pause is None:
                        raise
                link = None
                time.sleep(pause)
        finally:
            self.count(download.received)

    def _attempt(self, download: Download, link: DownloadLink, sink: Sink) -> None:
        request = download.start_attempt(link)
        while True:
            with Exchange(self.client.session, self.client.settings.timeout) as exchange:
                head = exchange.open(request)
                if isinstance(head, TransportFailure):
                    return download.finish_attempt(head)
                if not download.follow_redirect(head):
                    return self._read_body(download, sink, exchange, head)
            request = download.request()

    def _read_body(self, download: Download, sink: Sink, exchange: Exchange, head: Response) -> None:
        download.accept_head(head)
        if download.position == 0:
            sink.restart()
        while (wanted := download.bytes_wanted) and (piece := exchange.read(int(min(CHUNK, wanted)))):
            if isinstance(piece, TransportFailure):
                return download.finish_attempt(piece)
            download.accept_body(piece)
            sink.write(piece)
            if line := download.report(self.clock()):
                self.on_report(line)
        return download.finish_attempt(None)
