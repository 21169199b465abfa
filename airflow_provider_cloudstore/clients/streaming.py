"""Downloads a file, for workers; ``protocol/download_requests.py`` decides what to request and what to accept."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import BinaryIO

from airflow_provider_cloudstore.clients.blocking import BlockingClient, Exchange
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.download_requests import BEGINNING, Download
from airflow_provider_cloudstore.protocol.http import TransportFailure
from airflow_provider_cloudstore.results import DownloadedFile, DownloadLink


def stream(
    client: BlockingClient,
    download: Download,
    file: BinaryIO,
    path: str,
    create_link: Callable[[str], DownloadLink],
) -> DownloadedFile:
    """Download a file over the client's session. Each attempt uses a new link.

    :param client: its connection's timeout limits the wait for each response and for each piece of its body.
    :param file: an empty local file, open for writing and reading.
    :param create_link: creates a link; its errors end the download, because the call has already retried them.
    """
    while True:
        link = create_link(download.file_id)
        download.retries.count += 1
        try:
            _receive(client, download, file, link)
        except CloudStoreError as error:
            pause = download.retries.next_pause_or_raise(error)
        else:
            break
        time.sleep(pause)
    file.seek(0)
    return download.result(link, path, file.read(BEGINNING))


def _receive(client: BlockingClient, download: Download, file: BinaryIO, link: DownloadLink) -> None:
    """Make one attempt: follow redirects, then write the file or the rest of it."""
    download.settings = client.settings  # creating the link may have renewed the token
    url = download.url_of(link)
    for redirects in itertools.count():
        request = download.request(url)
        with Exchange(client) as exchange:
            head = exchange.open(request)
            if isinstance(head, TransportFailure):
                raise download.without_response(head)
            if target := download.redirect(head, request.url, redirects):
                url = target
                continue
            file.seek(download.accept(head))
            file.truncate()
            while piece := exchange.read(decoded=False):
                if isinstance(piece, TransportFailure):
                    raise download.without_response(piece)
                file.write(piece)
                download.add(piece)
            download.check_end()
            return
