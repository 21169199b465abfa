"""Streams a download into a sink, for workers; ``protocol/downloads.py`` decides what to request and what to accept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.exchange import Exchange
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, pause_before_retry
from airflow_provider_cloudstore.protocol.downloads import Download
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
    :param time_left: returns the seconds until the task's ``execution_timeout``.
    :param count: is told what each download did, ``bytes``, ``resumptions`` and ``replaced_links``.
    """

    def __init__(
        self,
        client: BlockingClient,
        create_link: Callable[[str], DownloadLink],
        *,
        time_left: Callable[[], float] = lambda: math.inf,
        count: Callable[[Mapping[str, int]], None] = lambda counts: None,
    ) -> None:
        self._client = client
        self._create_link = create_link
        self._time_left, self._count = time_left, count

    def run(self, download: Download, sink: Sink, *, on_retry: Callable[[str], None]) -> None:
        """Write the file, or the selected range, into ``sink``.

        :param sink: where to; it is restarted whenever the file starts over.
        :param on_retry: called with a log line before each pause.
        :raises CloudStoreError: if the download failed permanently, or ran out of attempts or time.
        :raises OSError: if the sink does.
        """
        clock = _Clock(self._time_left())
        try:
            while True:
                if download.needs_link:
                    download.use_link(self._create_link(download.file_id))
                try:
                    return self._attempt(download, sink, clock)
                except CloudStoreError as error:
                    pause = pause_before_retry(download, error, clock.time_left(), on_retry)
                    if pause is None:
                        raise
                time.sleep(pause)
        finally:
            self._count(download.counts)
            download.counts.clear()

    def _attempt(self, download: Download, sink: Sink, clock: _Clock) -> None:
        request = download.start_attempt()
        limit = max(0.001, min(self._client.settings.timeout, clock.ends_at - time.monotonic()))
        while True:
            with Exchange(self._client.session, limit) as exchange:
                head = exchange.open(request)
                if isinstance(head, TransportFailure):
                    clock.check(download)
                    return download.finish_attempt(head)
                if not download.follow_redirect(head):
                    return self._read_body(download, sink, exchange, head, clock)
            request = download.request()

    @staticmethod
    def _read_body(download: Download, sink: Sink, exchange: Exchange, head: Response, clock: _Clock) -> None:
        to_skip = download.accept_head(head)
        if download.position == 0:
            sink.restart()
        while (wanted := to_skip or download.bytes_wanted) and (piece := exchange.read(int(min(CHUNK, wanted)))):
            clock.check(download)
            if isinstance(piece, TransportFailure):
                return download.finish_attempt(piece)
            if to_skip:
                to_skip -= len(piece)
                download.skip(len(piece))
                continue
            is_progress = download.accept_body(piece)
            sink.write(piece)
            if is_progress:
                clock.note_progress()
        return download.finish_attempt(None)


class _Clock:
    """How long a download may go on: until ``execution_timeout``, and for five minutes without progress."""

    def __init__(self, seconds: float) -> None:
        self._began = self._progressed_at = time.monotonic()
        self.ends_at = self._began + seconds

    def note_progress(self) -> None:
        """Count the five minutes anew."""
        self._progressed_at = time.monotonic()

    def time_left(self) -> float:
        """Seconds for further attempts and pauses."""
        return min(self.ends_at, self._progressed_at + DEFAULT_BUDGET) - time.monotonic()

    def check(self, download: Download) -> None:
        """Check that there is time left.

        :raises CloudStoreError: if ``execution_timeout`` is over.
        """
        if (now := time.monotonic()) >= self.ends_at:
            raise download.out_of_time(now - self._began)
