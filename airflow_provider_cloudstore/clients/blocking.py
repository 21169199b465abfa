"""Sends the protocol's requests with ``requests``, for workers.

Of ``requests`` only the transport takes part: no session, so that no redirect is resolved, no cookie kept and no body decoded.
Where it speaks to the socket it is watched, because it limits neither the whole time nor the bytes of an answer, and does not
tell whether a request had left. What is secret in a request is added there, too: nothing above can print it.
"""

from __future__ import annotations

import functools
import http.client
import logging
import os
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import pendulum
import requests
import urllib3
from requests.adapters import HTTPAdapter
from tenacity import Retrying
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from airflow_provider_cloudstore.clients.reasons import MalformedResponse, failure_of
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import framing, messages
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, retry_policy
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.proxies import Proxy
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_BLANK_LINE = re.compile(rb"(?m)^\r?\n")


class BlockingClient:
    """Sessions with the service, one for each thread that uses it.

    :param settings: the address, the token, the time limits.
    :param reload: reads the settings again; asked once in a call whose token was refused.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Settings]) -> None:
        self._settings = settings
        self._reload = reload
        self._transports: dict[tuple[int, int], _Transport] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens connections of its own."""
        return type(self), (self._settings, self._reload)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next call opens a new one."""
        while self._transports:
            self._transports.popitem()[1].close()

    def perform(self, call: Call[T], *, budget: float = DEFAULT_BUDGET, on_retry: Callable[[str], None] = log.warning) -> T:
        """Send a call's requests until one of them settles it.

        :param call: what to do.
        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: is given one line before each pause.
        :raises CloudStoreError: if it failed for good, its attempts or its time are used up.
        """
        ends_at = time.monotonic() + budget
        for attempt in Retrying(**retry_policy(call, budget, on_retry)):
            with attempt:
                result = self.attempt(call, ends_at - time.monotonic())
        return result

    def attempt(self, call: Call[T], time_left: float = DEFAULT_BUDGET) -> T:
        """Send one request of a call.

        :param call: what to do.
        :param time_left: seconds that it may take, if the connection's timeout is not shorter.
        :raises CloudStoreError: if this attempt failed.
        """
        if call.token_rejected:
            call.replace_credentials(self._reload())
        return call.handle_outcome(self._send(call.request(), time_left))

    def _send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """Send one request. A library's exception ends here: it is not even the context of what is raised later."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        # A connection is shared neither with a forked process nor with another thread, which would take its answer.
        owner = os.getpid(), threading.get_ident()
        transport = self._transports.get(owner) or self._transports.setdefault(owner, _Transport(self._settings))
        watch = transport.watch
        watch.begin(request, limit)
        sent_at = pendulum.now("UTC")
        try:
            status, headers, body = transport.exchange(request)
        except Exception as error:  # noqa: BLE001  (whatever a library raises, it ends here, with a reason)
            failure = failure_of(error, sent=watch.sent, limit=limit)
        else:
            too_large = len(body) > messages.MAX_BODY_BYTES
            return Response(status, headers, body[: messages.MAX_BODY_BYTES], sent_at, pendulum.now("UTC"), too_large=too_large)
        return connect_refused(watch.status) if watch.status and not watch.sent else failure


class _WireWatch:
    """What is known of the request under way where its connection is, and the limits that hold there."""

    def __init__(self) -> None:
        self.unread = bytearray()  # what came of the connection and was not read: after an answer there must be none

    def begin(self, request: Request, limit: float) -> None:
        self.request = request
        self.sent = False
        self.status: int | None = None  # the last that came: before the request is sent, it is the proxy's
        self._bytes = 0
        self._ends_at = time.monotonic() + limit
        self._connected_by = time.monotonic() + min(limit, messages.CONNECT_TIMEOUT)

    def left(self) -> float:
        """Seconds that the next operation may take."""
        seconds = (self._ends_at if self.sent else self._connected_by) - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def came(self, piece: memoryview) -> None:
        self.unread += piece
        self._bytes += len(piece)
        if self._bytes > messages.MAX_WIRE_BYTES:
            raise MalformedResponse


class _Reader:
    """The file that :class:`http.client.HTTPResponse` reads from."""

    def __init__(self, raw: Any, sock: socket.socket, watch: _WireWatch) -> None:
        self._raw, self._sock, self._watch = raw, sock, watch
        if hasattr(sock, "suppress_ragged_eofs"):
            sock.suppress_ragged_eofs = False  # else a reset looks like a close
        self._begun = self._ended = False
        self.chunks: framing.Chunks | None = None  # of a body that comes in chunks
        self.flush = raw.flush
        self.close = raw.close

    def readline(self, limit: int = messages.MAX_LINE_BYTES) -> bytes:
        unread = self._watch.unread
        while (end := unread.find(b"\n") + 1) == 0 and len(unread) < limit and self._more():
            pass
        line = self._take(min(end or limit, limit))
        if not line.endswith(b"\n") and len(line) < limit and (line or self._begun):
            raise MalformedResponse  # http.client takes a head that is cut off for a whole one
        self._begun = True
        return line

    def await_head(self, status_line: bytes) -> None:
        """Read ahead until the headers are whole, and refuse what readers take apart differently."""
        unread, at = self._watch.unread, 0
        while (end := _BLANK_LINE.search(unread, at)) is None:
            at = max(0, len(unread) - 2)
            if len(unread) > messages.MAX_HEAD_BYTES or not self._more():
                raise MalformedResponse
        if not framing.is_head(status_line + unread[: end.end()]):
            raise MalformedResponse

    def read(self, amount: int) -> bytes:
        if amount < 0:
            raise MalformedResponse
        while len(self._watch.unread) < amount and self._more():
            pass
        return self._take(amount)

    def _more(self) -> bool:
        if self._ended:
            return False
        self._sock.settimeout(self._watch.left())
        piece = bytearray(_CHUNK)
        try:
            count = self._raw.readinto(piece)
        except ssl.SSLEOFError as error:
            if not error.reason:  # what OpenSSL makes of a reset
                raise ConnectionResetError from None
            count = 0  # a close without close_notify is one like that of a connection without TLS
        self._watch.came(memoryview(piece)[:count])
        self._ended = not count
        return bool(count)

    def _take(self, amount: int) -> bytes:
        taken = bytes(self._watch.unread[:amount])
        del self._watch.unread[:amount]
        if self.chunks and not self.chunks.accept(taken):
            raise MalformedResponse
        return taken


class _Response(http.client.HTTPResponse):
    """A response that passes over interim ones and can be read in one way only."""

    def __init__(self, watch: _WireWatch, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._watch = watch
        self.fp: Any = _Reader(self.fp.detach(), sock, watch)

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(messages.MAX_INTERIM_RESPONSES + 1):
            line = self.fp.readline()
            if not line:
                raise http.client.RemoteDisconnected("")
            if not framing.is_status_line(line):
                raise MalformedResponse
            self.fp.await_head(line)
            status = int(line[9:12])
            if not messages.is_interim(status):
                self._watch.status = status
                return line[:8].decode(), status, line[12:].strip().decode("latin-1")
            http.client.parse_headers(self.fp)
        raise MalformedResponse

    def begin(self) -> None:
        super().begin()
        usable = messages.is_final(self.status) and messages.is_unambiguous(
            self.status, messages.headers_of(self.headers.items())
        )
        if self.headers.defects or not usable:
            raise MalformedResponse
        if self.chunked and self.fp:
            self.fp.chunks = framing.Chunks()


class _Transport(HTTPAdapter):
    """The transport of ``requests`` to one address, with connections that are watched.

    :param settings: the address, its proxy and its certificates.
    """

    def __init__(self, settings: Settings) -> None:
        self.watch = _WireWatch()
        self._proxy = Proxy.of(settings.proxy)
        addresses = (settings.base_url, self._proxy.url if self._proxy else "")
        self._tls = tls_context(settings.verify) if any(url.startswith("https:") for url in addresses) else None
        super().__init__()

    def exchange(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Send one request and read one response, with no more of its body than tells that it is too large."""
        asked = requests.PreparedRequest()
        asked.method, asked.url = request.method, request.url.partition("?")[0]
        asked.headers = requests.structures.CaseInsensitiveDict(request.headers)
        asked.headers.pop("Authorization", None)
        if request.body is not None:
            asked.headers["Content-Length"] = str(len(request.body))
        left = self.watch.left()
        answer: Any = self.send(asked, True, left, proxies={"http": self._proxy.url} if self._proxy else None)
        try:
            body = bytearray()
            while len(body) <= messages.MAX_BODY_BYTES and (piece := answer.read(_CHUNK, decode_content=False)):
                body += piece
        finally:
            answer.close()  # and the connection with it, unless the answer was read to its end
        return answer.status, messages.headers_of(answer.headers.iteritems()), bytes(body)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Instead of the one of ``requests``: no credentials in a proxy's URL, and connections that are watched."""
        if self._proxy:
            self.poolmanager = urllib3.ProxyManager(
                self._proxy.url, proxy_headers=self._proxy.headers, ssl_context=self._tls, proxy_ssl_context=self._tls
            )
        else:
            self.poolmanager = urllib3.PoolManager(ssl_context=self._tls)
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self.watch)

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        """The pool of the address."""
        return self.poolmanager.connection_from_url(request.url)

    def cert_verify(self, *args: Any) -> None:
        """Nothing: the TLS context says which certificates are trusted."""

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:
        """What came, and not what ``requests`` makes of it."""
        return resp


def _pool_classes(watch: _WireWatch) -> dict[str, Any]:
    """urllib3's pools with connections that ask ``watch`` (``PoolManager.pool_classes_by_scheme``, ``ConnectionCls``)."""

    class Http(HTTPConnection):
        response_class: Any = functools.partial(_Response, watch)

        @property
        def is_connected(self) -> bool:
            return not watch.unread and super().is_connected

        def _new_conn(self) -> socket.socket:
            watch.unread.clear()
            return _dial(self._dns_host, self.port, watch.left, self.socket_options or ())

        def _tunnel(self) -> None:
            super()._tunnel()
            self.sock.settimeout(watch.left())  # for the handshake

        def connect(self) -> None:
            super().connect()
            watch.sent = True

        def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
            watch.sent = self.sock is not None
            super().putrequest(method, url + "".join(watch.request.url.partition("?")[1:]), *args, **kwargs)

        def endheaders(self, *args: Any, **kwargs: Any) -> None:
            if authorization := watch.request.headers.get("Authorization"):
                self.putheader("Authorization", authorization.encode())  # type: ignore[arg-type]
            super().endheaders(watch.request.body)

        def send(self, data: Any) -> None:
            if self.sock is not None:
                self.sock.settimeout(watch.left())
            super().send(data)

    class Https(Http, HTTPSConnection):
        pass

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = Http

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = Https

    return {"http": HttpPool, "https": HttpsPool}


def _dial(host: str, port: int, left: Callable[[], float], options: Any) -> socket.socket:
    """A connection to the first address of a name that accepts one; each gets its share of the time that is left."""
    addresses = _resolve(host, port, left())
    for waiting in range(len(addresses), 0, -1):
        family, kind, protocol, _, address = addresses[-waiting]
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(left() / waiting)
            sock.connect(address)
            sock.settimeout(left())
        except BaseException as error:
            sock.close()
            if waiting > 1 and isinstance(error, OSError):
                continue
            raise
        return sock
    raise socket.gaierror


def _resolve(host: str, port: int, seconds: float) -> list[Any]:
    """The addresses of a name. Nothing can interrupt a look-up: one that takes too long is left behind in its own thread."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001  (raised by the one who waits)
            found.put(error)

    threading.Thread(target=look_up, daemon=True).start()
    try:
        addresses = found.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(addresses, Exception):
        raise addresses
    return list(addresses)
