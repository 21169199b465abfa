"""Sends the protocol's requests with ``requests``, for workers.

It uses the transport adapter alone: without a session, no redirect is followed, no cookie kept and no body decoded. The
adapter limits neither the total time nor the size of a response and does not report whether a request was sent, so its
connections do that here. They also add what is secret in a request: nothing above them can print it.
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
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pendulum
import requests
from requests.adapters import HTTPAdapter
from tenacity import Retrying
from urllib3.connection import HTTPConnection

from airflow_provider_cloudstore.clients.pools import pool_manager
from airflow_provider_cloudstore.clients.reasons import MalformedResponse, transport_failure
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


class BlockingClient(AbstractContextManager["BlockingClient"]):
    """Performs calls, with connections of its own for each thread.

    :param settings: the address, the token and the timeouts.
    :param reload: reads the settings again, once per call, after the service rejects the token.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Settings]) -> None:
        self._settings = settings
        self._reload = reload
        self._transports: dict[tuple[int, int], _Transport] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens its own connections."""
        return type(self), (self._settings, self._reload)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next call opens a new one."""
        while self._transports:
            self._transports.popitem()[1].close()

    def perform(self, call: Call[T], *, budget: float = DEFAULT_BUDGET, on_retry: Callable[[str], None] = log.warning) -> T:
        """Make attempts until the call succeeds or fails permanently.

        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: called with a log line before each pause.
        :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
        """
        ends_at = time.monotonic() + budget
        for attempt in Retrying(**retry_policy(call, lambda: ends_at - time.monotonic(), on_retry)):
            with attempt:
                result = self.attempt(call, ends_at - time.monotonic())
        return result

    def attempt(self, call: Call[T], time_left: float = DEFAULT_BUDGET) -> T:
        """Send one request of a call.

        :param time_left: maximum seconds, if the connection's timeout is not shorter.
        :raises CloudStoreError: if the attempt failed.
        """
        if call.token_rejected:
            call.replace_credentials(self._reload())
        return call.handle_outcome(self._send(call.request(), time_left))

    def _send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """Send one request. Library exceptions end here: they are not even the context of a later error."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        # A forked process or another thread would take the response to a request over the same connection.
        owner = os.getpid(), threading.get_ident()
        transport = self._transports.get(owner) or self._transports.setdefault(owner, _Transport(self._settings))
        state = transport.state
        state.begin(request, limit)
        sent_at = pendulum.now("UTC")
        try:
            status, headers, body = transport.exchange(request)
        except Exception as error:  # noqa: BLE001  (library exceptions end here, with a reason)
            failure = transport_failure(error, sent=state.sent, limit=limit, through_proxy=transport.has_proxy)
        else:
            too_large = len(body) > messages.MAX_BODY_BYTES
            return Response(status, headers, body[: messages.MAX_BODY_BYTES], sent_at, pendulum.now("UTC"), too_large=too_large)
        return connect_refused(state.status) if state.status and not state.sent else failure


class _RequestState:
    """The request in flight, as its connection sees it, and its limits."""

    def __init__(self) -> None:
        self.buffer = bytearray()  # received and not yet consumed: empty after a response

    def begin(self, request: Request, limit: float) -> None:
        self.request = request
        self.sent = False
        self.status: int | None = None  # of the last response: until the request is sent, the proxy's
        self._received = 0
        self._deadline = time.monotonic() + limit
        self._connect_deadline = time.monotonic() + min(limit, messages.CONNECT_TIMEOUT)

    def time_left(self) -> float:
        """Seconds that the next socket operation may take."""
        seconds = (self._deadline if self.sent else self._connect_deadline) - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def feed(self, piece: memoryview) -> None:
        self.buffer += piece
        self._received += len(piece)
        if self._received > messages.MAX_WIRE_BYTES:
            raise MalformedResponse


class _Reader:
    """The file that :class:`http.client.HTTPResponse` reads from."""

    def __init__(self, raw: Any, sock: socket.socket, state: _RequestState) -> None:
        self._raw, self._sock, self._state = raw, sock, state
        if hasattr(sock, "suppress_ragged_eofs"):
            sock.suppress_ragged_eofs = False  # else a reset looks like a close
        self._started = self._eof = False
        self._chunks: framing.Chunks | None = None  # of a chunked body
        self.flush = raw.flush
        self.close = raw.close

    def readline(self, limit: int = messages.MAX_LINE_BYTES) -> bytes:
        buffer = self._state.buffer
        while (end := buffer.find(b"\n") + 1) == 0 and len(buffer) < limit and self._fill():
            pass
        line = self._consume(min(end or limit, limit))
        if not line.endswith(b"\n") and len(line) < limit and (line or self._started):
            raise MalformedResponse  # http.client takes a truncated head for a complete one
        self._started = True
        return line

    def await_head(self, status_line: bytes) -> None:
        """Buffer the head, and reject one that is ambiguous."""
        buffer, at = self._state.buffer, 0
        while (end := _BLANK_LINE.search(buffer, at)) is None:
            at = max(0, len(buffer) - 2)
            if len(buffer) > messages.MAX_HEAD_BYTES or not self._fill():
                raise MalformedResponse
        if not framing.is_head(status_line + buffer[: end.end()]):
            raise MalformedResponse

    def await_chunks(self) -> None:
        """Reject a body from its first invalid chunk on; those that the head's last piece brought are validated at once."""
        self._chunks = framing.Chunks()
        self._accept(bytes(self._state.buffer))

    def read(self, amount: int) -> bytes:
        if amount < 0:
            raise MalformedResponse
        while len(self._state.buffer) < amount and self._fill():
            pass
        return self._consume(amount)

    def _fill(self) -> bool:
        if self._eof:
            return False
        self._sock.settimeout(self._state.time_left())
        piece = bytearray(_CHUNK)
        try:
            count = self._raw.readinto(piece)
        except ssl.SSLEOFError as error:
            if not error.reason:  # OpenSSL's report of a reset
                raise ConnectionResetError from None
            count = 0  # without close_notify; treated as a close without TLS
        self._state.feed(memoryview(piece)[:count])
        self._accept(bytes(piece[:count]))
        self._eof = not count
        return bool(count)

    def _accept(self, data: bytes) -> None:
        if self._chunks and not self._chunks.accept(data):
            raise MalformedResponse

    def _consume(self, amount: int) -> bytes:
        data = bytes(self._state.buffer[:amount])
        del self._state.buffer[:amount]
        return data


class _Response(http.client.HTTPResponse):
    """A final response that is unambiguous."""

    def __init__(self, state: _RequestState, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._state = state
        self.fp: Any = _Reader(self.fp.detach(), sock, state)

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
                self._state.status = status
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
            self.fp.await_chunks()


class _Transport(HTTPAdapter):
    """The adapter of ``requests`` to one address."""

    def __init__(self, settings: Settings) -> None:
        self.state = _RequestState()
        self._proxy = Proxy.of(settings.proxy)
        self.has_proxy = self._proxy is not None
        addresses = (settings.base_url, self._proxy.url if self._proxy else "")
        self._tls = tls_context(settings) if any(url.startswith("https:") for url in addresses) else None
        super().__init__()

    def exchange(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Send one request and read one response; its body up to the first piece that makes it too large."""
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url = request.method, request.url.partition("?")[0]
        prepared.headers = requests.structures.CaseInsensitiveDict(request.headers)
        prepared.headers.pop("Authorization", None)
        if request.body is not None:
            prepared.headers["Content-Length"] = str(len(request.body))
        time_left = self.state.time_left()
        response: Any = self.send(prepared, True, time_left, proxies={"http": self._proxy.url} if self._proxy else None)
        try:
            body = bytearray()
            while len(body) <= messages.MAX_BODY_BYTES and (piece := response.read(_CHUNK, decode_content=False)):
                body += piece
        finally:
            response.close()  # and the connection, unless the response was read to its end
        return response.status, messages.headers_of(response.headers.iteritems()), bytes(body)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """In place of the one in ``requests``: no credentials in the proxy's URL, and connections of our own class."""
        self.poolmanager = pool_manager(self._proxy, self._tls, _connection_class(self.state))

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        """The pool of the address."""
        return self.poolmanager.connection_from_url(request.url)

    def cert_verify(self, *args: Any) -> None:
        """Do nothing: the TLS context has the trusted certificates."""

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> Any:
        """urllib3's response, unchanged."""
        return resp


def _connection_class(state: _RequestState) -> type[HTTPConnection]:
    class Http(HTTPConnection):
        response_class: Any = functools.partial(_Response, state)

        @property
        def is_connected(self) -> bool:
            return not state.buffer and super().is_connected

        def _new_conn(self) -> socket.socket:
            state.buffer.clear()
            return _connect(self._dns_host, self.port, state.time_left, self.socket_options or ())

        def _tunnel(self) -> None:
            super()._tunnel()
            state.status = None  # the proxy refused nothing
            self.sock.settimeout(state.time_left())  # for the handshake

        def connect(self) -> None:
            super().connect()
            state.sent = True

        def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
            state.sent = self.sock is not None
            super().putrequest(method, url + "".join(state.request.url.partition("?")[1:]), *args, **kwargs)

        def endheaders(self, *args: Any, **kwargs: Any) -> None:
            if authorization := state.request.headers.get("Authorization"):
                self.putheader("Authorization", authorization.encode())  # type: ignore[arg-type]
            super().endheaders(state.request.body)

        def send(self, data: Any) -> None:
            if self.sock is not None:
                self.sock.settimeout(state.time_left())
            super().send(data)

    return Http


def _connect(host: str, port: int, time_left: Callable[[], float], options: Any) -> socket.socket:
    """Connect to the first address of a host that accepts; each address gets an equal share of the remaining time."""
    addresses = _resolve(host, port, time_left())
    for untried in range(len(addresses), 0, -1):
        family, kind, protocol, _, address = addresses[-untried]
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(time_left() / untried)
            sock.connect(address)
            sock.settimeout(time_left())
        except BaseException as error:
            sock.close()
            if untried > 1 and isinstance(error, OSError):
                continue
            raise
        return sock
    raise socket.gaierror


def _resolve(host: str, port: int, seconds: float) -> list[Any]:
    """Resolve a host name. Nothing can interrupt ``getaddrinfo``, so a slow look-up is abandoned in a thread of its own."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001  (raised in the waiting thread)
            found.put(error)

    threading.Thread(target=look_up, daemon=True).start()
    try:
        addresses = found.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(addresses, Exception):
        raise addresses
    return list(addresses)
