"""Streams a download into a sink, for workers; ``protocol/downloads.py`` decides what to request and what to accept.

A link is secret as a whole, so urllib3 gets the origin alone, and the connection writes the path and query.
"""

from __future__ import annotations

import functools
import http.client
import io
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import pendulum
import urllib3
from tenacity import Retrying
from urllib3.connection import HTTPConnection

from airflow_provider_cloudstore.clients.pools import pool_manager
from airflow_provider_cloudstore.clients.reasons import MalformedResponse, transport_failure
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, retry_policy
from airflow_provider_cloudstore.protocol.downloads import Download, FileVersion
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure, headers_of
from airflow_provider_cloudstore.protocol.proxies import Proxy, environment_proxy
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

CHUNK = 256 * 1024
_IDLE_CLIENTS = 4  # of an open file


class Sink(Protocol):
    """Where a download is written."""

    def restart(self) -> None:
        """Discard what was written."""

    def write(self, data: bytes, /) -> Any:
        """Write the next bytes."""


class DownloadClient(AbstractContextManager["DownloadClient"]):
    """Connections to the download hosts, for one download at a time.

    :param settings: the time limits, the certificates and the proxy.
    :param create_link: creates a link; its errors are final.
    :param time_left: returns the seconds until the task's ``execution_timeout``. The connection's timeout limits the wait for
        each response and for each piece of its body; five minutes limit attempts and pauses without 64 KiB of progress.
    :param count: is told what each download did, by :data:`~airflow_provider_cloudstore.protocol.metrics.DOWNLOAD_COUNTS`.
    """

    def __init__(
        self,
        settings: Settings,
        create_link: Callable[[str], DownloadLink],
        *,
        time_left: Callable[[], float] = lambda: math.inf,
        count: Callable[[Mapping[str, int]], None] = lambda counts: None,
    ) -> None:
        self._settings = settings
        self._create_link = create_link
        self._time_left, self._count = time_left, count
        self._transports: dict[tuple[int, Secret | None, bool], _Transport] = {}

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next download opens a new one."""
        while self._transports:
            self._transports.popitem()[1].clear()

    def run(self, download: Download, sink: Sink, *, on_retry: Callable[[str], None]) -> None:
        """Write the file, or the selected range, into ``sink``.

        :param sink: where to; it is restarted whenever the file starts over.
        :param on_retry: called with a log line before each pause.
        :raises CloudStoreError: if the download failed permanently, or ran out of attempts or time.
        :raises OSError: if the sink does.
        """
        clock = _Clock(self._time_left())
        try:
            for attempt in Retrying(**retry_policy(download, clock.time_left, on_retry)):
                with attempt:
                    self._attempt(download, sink, clock)
        finally:
            self._count(download.counts)
            download.counts.clear()

    def _attempt(self, download: Download, sink: Sink, clock: _Clock) -> None:
        if download.needs_link:
            download.use_link(self._new_link(download.file_id))
        request = download.start_attempt()
        while True:
            stream = _ResponseStream(self._transport(request), self._settings.timeout, clock.ends_at)
            head = stream.open(request)
            if isinstance(head, TransportFailure):
                return clock.finish_attempt(download, head)
            try:
                if not download.follow_redirect(head):
                    return self._read_body(download, sink, stream, head, clock)
            finally:
                stream.close()
            request = download.request()

    @staticmethod
    def _read_body(download: Download, sink: Sink, stream: _ResponseStream, head: Response, clock: _Clock) -> None:
        to_skip = download.accept_head(head)
        if download.position == 0:
            sink.restart()
        failure: TransportFailure | None = None
        while to_skip and not isinstance(piece := stream.read(to_skip), TransportFailure) and piece:
            to_skip -= len(piece)
            download.skip(len(piece))
        while failure is None and (wanted := download.bytes_wanted) != 0:
            piece = stream.read(wanted)
            if isinstance(piece, TransportFailure):
                failure = piece
            elif piece:
                is_progress = download.accept_body(piece)
                sink.write(piece)
                if is_progress:
                    clock.note_progress()
            else:
                break
        clock.finish_attempt(download, failure)

    def _new_link(self, file_id: str) -> DownloadLink:
        try:
            return self._create_link(file_id)
        except CloudStoreError as error:
            error.retryable = False  # it has used up its own attempts
            raise

    def _transport(self, request: Request) -> _Transport:
        proxy = self._settings.proxy
        if self._settings.proxy_is_inherited or proxy is None:
            proxy = environment_proxy(request.url, os.environ)
        # Loading the certificates takes longer than downloading a small file.
        tls = any(url.startswith("https:") for url in (request.url, proxy.reveal() if proxy else ""))
        key = os.getpid(), proxy, tls
        if key not in self._transports:
            self._transports[key] = _Transport(self._settings, proxy, tls=tls)
        return self._transports[key]


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

    def finish_attempt(self, download: Download, failure: TransportFailure | None) -> None:
        """Check that the attempt downloaded all of its bytes.

        :raises CloudStoreError: if bytes are missing.
        """
        now = time.monotonic()
        if failure and now >= self.ends_at:
            raise download.out_of_time(now - self._began)
        download.finish_attempt(failure)


class FileReader:
    """Reads ranges of one version of a file, in any number of threads and forked processes; its link never leaves this object.

    Every range is a download of its own. What ranges share is replaced and never changed: the last good link, and idle clients.

    :param new_client: creates a client; each downloads one range at a time.
    :param download: the file; with a version, only that one is read.
    :param on_retry: called with a log line before each pause.
    :ivar size: the file's size in bytes.
    :ivar version: the file's version.
    :raises CloudStoreError: if the file cannot be read, or the download host does not send its size.
    """

    def __init__(self, new_client: Callable[[], DownloadClient], download: Download, on_retry: Callable[[str], None]) -> None:
        self._new_client, self._download, self._on_retry = new_client, download, on_retry
        self._idle: deque[DownloadClient] = deque()
        self._most_idle = _IDLE_CLIENTS
        try:
            self._read(0, 1)
            self.size = self._download.size
        except BaseException:
            self.close()
            raise
        self.version = self._download.version or FileVersion(None, "", "", "")

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a range, up to the end of the file.

        :param start: its first byte.
        :param end: the byte after its last one.
        :raises FileChangedError: if the file was replaced since it was opened.
        """
        end = min(end, self.size)
        return self._read(start, end) if start < end else b""

    def close(self) -> None:
        """Close the connections; those in use close when their range is read."""
        self._most_idle = 0
        self._close_surplus()

    def _read(self, start: int, end: int) -> bytes:
        sink, part = _MemorySink(), self._download.part(start, end)
        try:
            client = self._idle.pop()
        except IndexError:
            client = self._new_client()
        try:
            client.run(part, sink, on_retry=self._on_retry)
        finally:
            self._idle.append(client)
            self._close_surplus()
        self._download = part  # its link is the latest that worked
        return bytes(sink)

    def _close_surplus(self) -> None:
        while len(self._idle) > self._most_idle:
            with suppress(IndexError):  # another thread was faster
                self._idle.popleft().close()


class _MemorySink(bytearray):
    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear


class _RequestState:
    """The request in flight, as its connection sees it."""

    def __init__(self) -> None:
        self.target = ""
        self.sent = False
        self.deadline = 0.0
        self.refused_by_proxy = 0  # the status of its response to CONNECT

    def time_left(self) -> float:
        """Seconds until the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Transport:
    """urllib3 connection pools through one proxy, or none."""

    def __init__(self, settings: Settings, proxy_url: Secret | None, *, tls: bool) -> None:
        self.state = _RequestState()
        context, proxy = tls_context(settings) if tls else None, Proxy.of(proxy_url)
        self._pools = pool_manager(proxy, context, _connection_class(self.state))
        self.has_proxy = proxy is not None

    def send(self, request: Request) -> Any:
        """Send a request, and read the head of its response."""
        limit = self.state.time_left()
        parts = urlsplit(request.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.state.target = origin + target if self.has_proxy and parts.scheme == "http" else target
        self.state.sent, self.state.refused_by_proxy = False, 0
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


class _ResponseStream:
    """A response: its head, and each read of its body, are limited by the connection's timeout."""

    def __init__(self, transport: _Transport, timeout: float, ends_at: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._ends_at = ends_at
        self._response: Any = None

    def open(self, request: Request) -> Response | TransportFailure:
        """Send a request and read the head of its response. Library exceptions end here."""
        sent_at = pendulum.now("UTC")
        try:
            self._set_deadline()
            self._response = self._transport.send(request)
        except Exception as error:  # noqa: BLE001  (library exceptions end here, with a reason)
            return self._failure(error)
        headers = headers_of(self._response.headers.iteritems())
        return Response(self._response.status, headers, b"", sent_at, pendulum.now("UTC"))

    def read(self, wanted: int | None) -> bytes | TransportFailure:
        """The next bytes of the body; empty at its end."""
        try:
            self._set_deadline()
            # read1 returns what has arrived: read would wait for the rest, and lose it all if the connection broke.
            return bytes(self._response.read1(CHUNK if wanted is None else min(CHUNK, wanted), decode_content=False))
        except Exception as error:  # noqa: BLE001  (as above)
            return self._failure(error)

    def close(self) -> None:
        """Close the connection, unless the response was read to its end."""
        if self._response is not None:
            self._response.close()

    def _set_deadline(self) -> None:
        self._transport.state.deadline = min(time.monotonic() + self._timeout, self._ends_at)

    def _failure(self, error: Exception) -> TransportFailure:
        state, through_proxy = self._transport.state, self._transport.has_proxy
        if state.refused_by_proxy and not state.sent:
            return connect_refused(state.refused_by_proxy)
        return transport_failure(error, sent=state.sent, limit=self._timeout, through_proxy=through_proxy)


class _DeadlineReader(io.RawIOBase):
    """Limits a series of reads by one deadline: a socket's own timeout restarts with every byte."""

    def __init__(self, raw: Any, sock: Any, state: _RequestState) -> None:
        self._raw, self._sock, self._state = raw, sock, state

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._state.time_left())
        return int(self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A final response, read within the deadline."""

    def __init__(self, state: _RequestState, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._state = state
        self.fp: Any = io.BufferedReader(_DeadlineReader(self.fp.detach(), sock, state))

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(messages.MAX_INTERIM_RESPONSES + 1):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not messages.is_interim(status):
                self._state.refused_by_proxy = 0 if self._state.sent or 200 <= status < 300 else status
                return version, status, reason
            http.client.parse_headers(self.fp)
        raise MalformedResponse


def _connection_class(state: _RequestState) -> type[HTTPConnection]:
    class Http(HTTPConnection):
        response_class: Any = functools.partial(_Response, state)

        def connect(self) -> None:
            super().connect()
            state.sent = True

        def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
            state.sent = state.sent or self.sock is not None
            super().putrequest(method, state.target, *args, **kwargs)

    return Http
