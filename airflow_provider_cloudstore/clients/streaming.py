"""Streams a download into a file, for workers; ``protocol/download_requests.py`` decides what to request and what to accept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import BinaryIO

from airflow_provider_cloudstore.clients.blocking import BlockingClient, Exchange
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET, pause_before_retry
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.messages import Request
from airflow_provider_cloudstore.results import DownloadLink


def stream(
    client: BlockingClient,
    download: Download,
    file: BinaryIO,
    create_link: Callable[[str], DownloadLink],
    link: DownloadLink | None = None,
    *,
    longest_pause: Callable[[], float] = lambda: DEFAULT_BUDGET,
) -> None:
    """Download a file into ``file`` over the client's session. Each attempt uses a new link.

    :param client: its connection's timeout limits the wait for each response and for each piece of its body.
    :param create_link: creates a link; its errors are not retried.
    :param link: a link that was just created, for the first attempt.
    :param longest_pause: returns the maximum seconds of a pause.
    :raises CloudStoreError: if the download failed permanently, or ran out of attempts or time.
    :raises OSError: if the file raises it.
    """
    while True:
        link = link or create_link(download.file_id)
        try:
            return _attempt(client, download, file, link)
        except CloudStoreError as error:
            pause = pause_before_retry(error, download.attempts, longest_pause())
            if pause is None:
                raise
        link = None
        time.sleep(pause)


def _attempt(client: BlockingClient, download: Download, file: BinaryIO, link: DownloadLink) -> None:
    request: Request | None = download.start_attempt(link)
    while request:
        with Exchange(client.session, client.settings.timeout) as exchange:
            request = download.accept_head(exchange.open(request))
            if request:
                continue
            file.truncate(download.position)
            file.seek(download.position)
            while piece := download.accept_body(exchange.read(decoded=False)):
                file.write(piece)
