"""Streams a download into a sink, for workers: what comes, whether it is enough, and where to go on is the protocol's to say.

urllib3 is given an address without path and query: a link is secret as a whole, and is added where the connection writes it.
"""

from __future__ import annotations

import functools
import http.client
import io
import math
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import pendulum
import urllib3
from tenacity import Retrying
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from airflow_provider_cloudstore.clients.reasons import MalformedResponse, failure_of
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.calls import retry_policy
from airflow_provider_cloudstore.protocol.downloads import Download, FileVersion
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure, headers_of
from airflow_provider_cloudstore.protocol.proxies import Proxy, environment_proxy
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

CHUNK = 256 * 1024


class Sink(Protocol):
    """Where the bytes go."""

    def restart(self) -> None:
        """Forget what was written."""

    def write(self, data: bytes, /) -> Any:
        """Keep the next bytes."""


class DownloadClient:
    """Connections to wherever the links lead, one after the other.

    :param settings: the time limits, the certificates and the proxy.
    :param mint: makes a link; an error of it is final.
    """

    def __init__(self, settings: Settings, mint: Callable[[str], DownloadLink]) -> None:
        self._settings = settings
        self._mint = mint
        self._transports: dict[tuple[int, int, Secret | None, bool], _Transport] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next download opens a new one."""
        while self._transports:
            self._transports.popitem()[1].clear()

    def run(self, download: Download, sink: Sink, *, budget: float = math.inf, on_retry: Callable[[str], None]) -> None:
        """Write what is due of a download into ``sink``.

        :param download: the download.
        :param sink: it is started again where the file is.
        :param budget: seconds for all attempts and the pauses between them. A connection's timeout is for the start of a
            response, and for each pause in it.
        :param on_retry: is given one line before each pause.
        :raises CloudStoreError: if it failed for good, its attempts or its time are used up.
        :raises OSError: as the sink raises it.
        """
        ends_at = time.monotonic() + budget
        for attempt in Retrying(**retry_policy(download, budget, on_retry)):
            with attempt:
                self._attempt(download, sink, ends_at)

    def _attempt(self, download: Download, sink: Sink, ends_at: float) -> None:
        if download.needs_link:
            download.use(self._fresh_link(download.file_id))
        request = download.first_request()
        while True:
            exchange = _Exchange(self._transport(request), self._settings.timeout, ends_at)
            head = exchange.open(request)
            if isinstance(head, TransportFailure):
                return download.end(head)
            try:
                if not download.redirects(head):
                    return self._read_body(download, sink, exchange, head)
            finally:
                exchange.close()
            request = download.request()

    @staticmethod
    def _read_body(download: Download, sink: Sink, exchange: _Exchange, head: Response) -> None:
        before = download.begin(head)
        if download.position == 0:
            sink.restart()
        failure: TransportFailure | None = None
        while before and not isinstance(piece := exchange.read(before), TransportFailure) and piece:
            before -= len(piece)
            download.skipped(len(piece))
        while failure is None and (wanted := download.wanted) != 0:
            piece = exchange.read(wanted)
            if isinstance(piece, TransportFailure):
                failure = piece
            elif piece:
                download.received(piece)
                sink.write(piece)
            else:
                break
        download.end(failure)

    def _fresh_link(self, file_id: str) -> DownloadLink:
        try:
            return self._mint(file_id)
        except CloudStoreError as error:
            error.retryable = False  # its own attempts are used up
            raise

    def _transport(self, request: Request) -> _Transport:
        proxy = self._settings.proxy
        if self._settings.proxy_is_inherited or proxy is None:
            proxy = environment_proxy(request.url, os.environ)
        # The certificates are read where TLS is spoken: that takes longer than many a file.
        tls = any(url.startswith("https:") for url in (request.url, proxy.reveal() if proxy else ""))
        key = os.getpid(), threading.get_ident(), proxy, tls
        if key not in self._transports:
            self._transports[key] = _Transport(self._settings, proxy, tls=tls)
        return self._transports[key]


class FileReader:
    """Reads one file in parts; its link stays here.

    :param client: reads them.
    :param download: the file.
    :param on_retry: is given one line before each pause.
    :ivar size: the file's size in bytes.
    :ivar version: what the download's host says of its version.
    :raises CloudStoreError: if the file cannot be read, or the download's host does not tell its size.
    """

    def __init__(self, client: DownloadClient, download: Download, on_retry: Callable[[str], None]) -> None:
        self._client, self._download, self._on_retry = client, download, on_retry
        self._read(0, 1)
        self.size = download.size
        self.version = download.version or FileVersion(None, "", "", "")

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a part.

        :param start: its first byte.
        :param end: the byte after its last one; behind the end of the file there are none.
        :raises FileChangedError: if the file was replaced since it was opened.
        """
        end = min(end, self.size)
        return self._read(start, end) if start < end else b""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _read(self, start: int, end: int) -> bytes:
        sink = _Memory()
        self._download.narrow(start, end)
        self._client.run(self._download, sink, budget=math.inf, on_retry=self._on_retry)
        return bytes(sink)


class _Memory(bytearray):
    """A sink."""

    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear


class _Wire:
    """What a connection needs to know of the request under way."""

    def __init__(self) -> None:
        self.target = ""
        self.sent = False
        self.deadline = 0.0

    def time_left(self) -> float:
        """Seconds until the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Transport:
    """urllib3's pools for one proxy, or for none."""

    def __init__(self, settings: Settings, proxy_url: Secret | None, *, tls: bool) -> None:
        self.wire = _Wire()
        context, proxy = tls_context(settings.verify) if tls else None, Proxy.of(proxy_url)
        self._pools: urllib3.PoolManager
        if proxy:
            self._pools = urllib3.ProxyManager(
                proxy.url, proxy_headers=proxy.headers, ssl_context=context, proxy_ssl_context=context
            )
        else:
            self._pools = urllib3.PoolManager(ssl_context=context)
        self._pools.pool_classes_by_scheme = _pool_classes(self.wire)
        self._in_full = proxy is not None  # to a proxy plain http names the whole address

    def send(self, request: Request) -> Any:
        """Send a request, and read the head of its response."""
        limit = self.wire.time_left()
        parts = urlsplit(request.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.wire.target = origin + target if self._in_full and parts.scheme == "http" else target
        self.wire.sent = False
        timeout = urllib3.Timeout(connect=min(limit, messages.CONNECT_TIMEOUT), read=limit)
        return self._pools.urlopen(
            "GET",
            f"{origin}/",
            headers=dict(request.headers),
            redirect=False,
            retries=False,
            timeout=timeout,
            preload_content=False,
            decode_content=False,
        )

    def clear(self) -> None:
        """Close the connections."""
        self._pools.clear()


class _Exchange:
    """One request and its response: the head, and each piece of the body, within the connection's timeout."""

    def __init__(self, transport: _Transport, timeout: float, ends_at: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._ends_at = ends_at
        self._response: Any = None

    def open(self, request: Request) -> Response | TransportFailure:
        """Send the request and read the head of the response. A library's exception ends here."""
        sent_at = pendulum.now("UTC")
        try:
            self._set_deadline()
            self._response = self._transport.send(request)
        except Exception as error:  # noqa: BLE001  (whatever a library raises, it ends here, with a reason)
            return self._failure(error)
        headers = headers_of(self._response.headers.iteritems())
        return Response(self._response.status, headers, b"", sent_at, pendulum.now("UTC"))

    def read(self, wanted: int | None) -> bytes | TransportFailure:
        """The next bytes of the body, and none at its end."""
        try:
            self._set_deadline()
            # What has come and no more: bytes that were waited for in vain together with others would have to come again.
            return bytes(self._response.read1(CHUNK if wanted is None else min(CHUNK, wanted), decode_content=False))
        except Exception as error:  # noqa: BLE001  (as above)
            return self._failure(error)

    def close(self) -> None:
        """Give the connection back where the response was read to its end, else close it."""
        if self._response is not None:
            self._response.close()

    def _set_deadline(self) -> None:
        self._transport.wire.deadline = min(time.monotonic() + self._timeout, self._ends_at)

    def _failure(self, error: Exception) -> TransportFailure:
        return failure_of(error, sent=self._transport.wire.sent, limit=self._timeout)


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until the deadline: a socket's own timeout starts again with every byte."""

    def __init__(self, raw: Any, sock: Any, wire: _Wire) -> None:
        self._raw, self._sock, self._wire = raw, sock, wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._wire.time_left())
        return int(self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response that passes over interim ones and keeps to the deadline."""

    def __init__(self, wire: _Wire, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(_DeadlineReader(self.fp.detach(), sock, wire))

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(messages.MAX_INTERIM_RESPONSES + 1):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not messages.is_interim(status):
                return version, status, reason
            http.client.parse_headers(self.fp)
        raise MalformedResponse


def _pool_classes(wire: _Wire) -> dict[str, Any]:
    class Http(HTTPConnection):
        response_class: Any = functools.partial(_Response, wire)

        def connect(self) -> None:
            super().connect()
            wire.sent = True

        def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
            wire.sent = wire.sent or self.sock is not None
            super().putrequest(method, wire.target, *args, **kwargs)

    class Https(Http, HTTPSConnection):
        pass

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}
