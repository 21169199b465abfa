"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers and batches.

All users of a connection in an event loop share one session, so thousands of waits in a triggerer open a handful of sockets.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiohttp
import pendulum
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from tenacity import AsyncRetrying
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import MalformedResponse, transport_failure
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import framing, messages
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, retry_policy
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.proxies import Proxy
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

POOL_LIMIT = 32
"""Default limit of the sockets that a shared session opens."""
_KEEP_ALIVE = 60.0


class Throttle(Protocol):
    """Decides when many concurrent calls may send their requests."""

    async def acquire(self) -> None:
        """Wait until the next request may be sent."""

    def record_success(self) -> None:
        """Record that a request succeeded after :meth:`acquire`."""

    def record_failure(self, error: CloudStoreError) -> bool:
        """Record that a request failed after :meth:`acquire`.

        :returns: whether to acquire again and retry without using up one of the call's attempts.
        """


class AsyncClient:
    """Performs calls over a session.

    :param settings: the address, the token and the timeouts.
    :param reload: reads the settings again, once per call, after the service rejects the token.
    :param session: the session; see :func:`shared_session`.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Awaitable[Settings]], session: Session) -> None:
        self._settings = settings
        self._reload = reload
        self._session = session

    async def perform(
        self,
        call: Call[T],
        *,
        budget: float = DEFAULT_BUDGET,
        on_retry: Callable[[str], None] = log.warning,
        throttle: Throttle | None = None,
    ) -> T:
        """Make attempts until the call succeeds or fails permanently.

        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: called with a log line before each pause.
        :param throttle: decides when to send each request; shared by many calls.
        :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
        """
        began = time.monotonic()
        try:
            return await self._throttled_attempt(call, budget, throttle)
        except CloudStoreError as error:
            if not error.retryable:
                raise
            failed: CloudStoreError | None = error
        # Most calls succeed at once, so the policy is built only now. It takes the attempt above for its first.
        ends_at = began + budget
        async for attempt in AsyncRetrying(**retry_policy(call, lambda: ends_at - time.monotonic(), on_retry)):
            with attempt:
                if failed:
                    first, failed = failed, None
                    raise first
                result = await self._throttled_attempt(call, ends_at - time.monotonic(), throttle)
        return result

    async def _throttled_attempt(self, call: Call[T], time_left: float, throttle: Throttle | None) -> T:
        """One attempt, repeated for as long as the throttle handles its failures."""
        if throttle is None:
            return await self.attempt(call, time_left)
        while True:
            await throttle.acquire()
            try:
                result = await self.attempt(call, time_left)
            except CloudStoreError as error:
                if not throttle.record_failure(error):
                    raise
                call.discount_attempt()
            else:
                throttle.record_success()
                return result

    async def attempt(self, call: Call[T], time_left: float = DEFAULT_BUDGET) -> T:
        """Send one request of a call.

        :param time_left: maximum seconds, if the connection's timeout is not shorter.
        :raises CloudStoreError: if the attempt failed.
        """
        if call.token_rejected:
            call.replace_credentials(await self._reload())
        async with self._session.slots:
            return call.handle_outcome(await self._send(call.request(), time_left))

    async def _send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """Send one request. Library exceptions end here: they are not even the context of a later error."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        deadline, time_left = time.monotonic() + limit, limit
        sent_at = pendulum.now("UTC")
        while True:
            in_flight = _InFlight()
            _in_flight.set(in_flight)  # read in this task
            try:
                return await self._exchange(request, time_left, sent_at)
            except _StaleConnection:  # aiohttp closed it, and nothing was sent over it
                time_left = deadline - time.monotonic()
            except aiohttp.ClientHttpProxyError as error:
                return connect_refused(error.status)
            except Exception as error:  # noqa: BLE001  (library exceptions end here, with a reason)
                sent, through_proxy = in_flight.connection is not None, self._session.proxy is not None
                return transport_failure(error, sent=sent, limit=limit, through_proxy=through_proxy)
            finally:
                in_flight.end()

    async def _exchange(self, request: Request, limit: float, sent_at: pendulum.DateTime) -> Response:
        proxy = self._session.proxy
        forwarded = proxy.headers if proxy and request.url.startswith("http:") else {}
        async with self._session.http.request(
            request.method,
            URL(request.url, encoded=True),
            headers={**request.headers, **forwarded},
            data=request.body,
            timeout=_timeout(limit),
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers if proxy else None,
            allow_redirects=False,
        ) as response:
            headers = messages.headers_of(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
            )
            usable = messages.is_final(response.status) and messages.is_unambiguous(response.status, headers)
            if not usable or len(response.raw_headers) > messages.MAX_HEADER_LINES:
                response.close()
                raise MalformedResponse
            body = bytearray()
            while not response.content.at_eof():
                body += await response.content.readany()
                if len(body) > messages.MAX_BODY_BYTES:
                    response.close()
                    break
            else:
                if failure := response.content.exception():  # at_eof() is also true after an error
                    raise failure
        too_large = len(body) > messages.MAX_BODY_BYTES
        return Response(
            response.status, headers, bytes(body[: messages.MAX_BODY_BYTES]), sent_at, pendulum.now("UTC"), too_large=too_large
        )


@functools.lru_cache(maxsize=16)
def _timeout(limit: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=max(0.001, limit), connect=min(limit, messages.CONNECT_TIMEOUT))


class _StaleConnection(Exception):
    """Bytes arrived over an idle connection, or it was closed: it must not be reused."""


_BLANK_LINE = re.compile(rb"\n\r?\n")
_EMPTY = 204
_EMPTY_RESPONSE = b"HTTP/1.1 204 No Content\r\n\r\n"


class _Connection(ResponseHandler):
    """A connection that closes when it receives a byte outside a response, or too many bytes of one."""

    in_flight: _InFlight | None = None
    between_responses = True
    head_received = False
    body: aiohttp.StreamReader | None = None
    chunks: framing.Chunks | None = None  # of a chunked body
    head = b""  # of the next response, as far as received
    body_bytes_left: int | None = None  # of a body with a Content-Length
    bytes_allowed = messages.MAX_HEAD_BYTES
    interim_allowed = messages.MAX_INTERIM_RESPONSES

    def set_response_params(self, **params: Any) -> None:
        # The old parser, about to be replaced, reads a whole response only if it does not already hold the start of another.
        if self._parser is not None and self.body_bytes_left != 0:
            try:
                messages, _, _ = self._parser.feed_data(_EMPTY_RESPONSE)
            except HttpProcessingError:
                messages = []
            self.between_responses = [message.code for message, _ in messages] == [_EMPTY]
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp itself calls this to resume what it buffered while the body was full
            super().data_received(data)
            return
        self.bytes_allowed -= len(data)
        if self.bytes_allowed < 0:
            self._abort()
            return
        while data and not self.head_received and self._parser:
            data = self._receive_head(data)
        if data and self.chunks and not self.chunks.accept(data):
            self._fail_body(MalformedResponse())
            self._abort()
        elif data:
            if self.body_bytes_left is not None:
                self.body_bytes_left -= len(data)
            super().data_received(data)

    def _receive_head(self, data: bytes) -> bytes:
        """Parse up to the end of the head and return the rest: a parser that fails there would lose the response.

        aiohttp's parser alone would also accept RTSP, and blank lines before a response.
        """
        before = len(self.head)
        self.head += data
        end = _BLANK_LINE.search(self.head, max(0, before - 2))
        rest = b"" if end is None else self.head[end.end() :]
        if end is not None and not framing.is_head(self.head[: end.end()]):
            super().set_exception(MalformedResponse())
            self._abort()
            return b""
        super().data_received(data[: len(data) - len(rest)])
        if end is not None:
            self.head = b""
        return rest

    def feed_data(self, data: Any, size: int = 0) -> None:
        message, body = data
        known = framing.is_status_line(self.head)
        if messages.is_interim(message.code):
            self.interim_allowed -= 1
        else:
            self.head_received, self.body = True, body
            self.bytes_allowed += messages.MAX_WIRE_BYTES
            length = message.headers.get("Content-Length", "")
            counted = messages.has_body(message.code) and not message.chunked and re.fullmatch("[0-9]{1,18}", length)
            self.chunks = framing.Chunks() if message.chunked else None
            self.body_bytes_left = int(length) if counted else None
        if known and self.interim_allowed >= 0:
            super().feed_data(data, size)
        else:
            self._abort()

    def set_exception(self, exc: Any, *args: Any) -> None:
        super().set_exception(exc, *args)
        # Otherwise the reader of a body with an invalid chunk would wait for more.
        if isinstance(exc, HttpProcessingError):
            self._fail_body(MalformedResponse())

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None:  # aiohttp takes a reset for the end of a body of unknown length
            self._fail_body(exc)
        super().connection_lost(exc)

    def _fail_body(self, error: BaseException) -> None:
        if self.body is not None and not self.body.is_eof():
            self.body.set_exception(error)

    def _abort(self) -> None:
        if not self.head_received:
            self._parser = None  # it would parse what it has as headers
        if self.transport:
            self.transport.abort()

    @property
    def stale(self) -> bool:
        """Whether bytes have arrived since the last response, or the server has closed the connection."""
        if self.in_flight is None:
            return False  # a new one: bytes to read belong to the TLS handshake
        sock = self.transport.get_extra_info("socket") if self.transport else None
        if sock is None or self.should_close or not self.between_responses:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))


@dataclass(slots=True, eq=False)
class _InFlight:
    """One request, and the connection over which it may have been sent."""

    connection: _Connection | None = None

    def begin(self, connection: _Connection) -> None:
        if connection.stale:
            raise _StaleConnection
        self.connection, connection.in_flight, connection.head_received = connection, self, False
        connection.head, connection.body, connection.body_bytes_left, connection.chunks = b"", None, None, None
        connection.bytes_allowed, connection.interim_allowed = messages.MAX_HEAD_BYTES, messages.MAX_INTERIM_RESPONSES

    def end(self) -> None:
        if self.connection and self.connection.in_flight is self:  # else it already has another request
            self.connection.bytes_allowed = 0


_in_flight: ContextVar[_InFlight] = ContextVar("_in_flight")


class _TrackedRequest(aiohttp.ClientRequest):
    """A request that records that it is being sent: an exception of aiohttp does not say."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        _in_flight.get().begin(conn.protocol)
        return await super().send(conn)


@dataclass(frozen=True, slots=True)
class Session:
    """An open HTTP session, and its slots: waiting for a slot does not count towards a request's timeout."""

    http: aiohttp.ClientSession
    slots: asyncio.Semaphore
    proxy: Proxy | None


@dataclass(slots=True)
class _SharedSession:
    opening: asyncio.Task[Session]
    users: int = 0


_shared: dict[tuple[Any, ...], _SharedSession] = {}
_closing: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def shared_session(
    settings: Settings, limit: int = POOL_LIMIT, *, fresh_connections: bool = False
) -> AsyncIterator[Session]:
    """The session shared by all users of an address in this event loop: opened with the first, closed after the last.

    Opening and closing are tasks of their own, so cancelling one user at any ``await`` does not affect the others.

    :param settings: the address, and how to verify it.
    :param limit: maximum number of sockets.
    :param fresh_connections: whether to open a new connection for each request.
    """
    loop = asyncio.get_running_loop()
    key = (loop, os.getpid(), settings.base_url, settings.verify, settings.proxy, limit, fresh_connections)
    shared = _shared.get(key)
    if shared is None:
        shared = _shared[key] = _SharedSession(loop.create_task(_open(settings, limit, fresh_connections)))
    shared.users += 1
    try:
        yield await asyncio.shield(shared.opening)
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[key]
            closing = loop.create_task(_close(shared.opening))
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.shield(closing)


async def _open(settings: Settings, limit: int, fresh: bool) -> Session:
    proxy = Proxy.of(settings.proxy)
    tls = any(url.startswith("https:") for url in (settings.base_url, proxy.url if proxy else ""))
    context = await asyncio.to_thread(tls_context, settings) if tls else False  # reads files
    reuse: dict[str, Any] = {"force_close": True} if fresh else {"keepalive_timeout": _KEEP_ALIVE}
    connector = aiohttp.TCPConnector(limit=limit, ssl=context, **reuse)
    # Both are private in aiohttp: the class of a connection (_factory), and its own resending of a GET (_retry_connection).
    factory: Any = functools.partial(_Connection, loop=asyncio.get_running_loop())
    connector._factory = factory
    http = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Content-Type"),
        request_class=_TrackedRequest,
        max_line_size=messages.MAX_LINE_BYTES,
        max_field_size=messages.MAX_LINE_BYTES,
    )
    http._retry_connection = False
    return Session(http, asyncio.Semaphore(limit), proxy)


async def _close(opening: asyncio.Task[Session]) -> None:
    await asyncio.wait([opening])
    if not opening.cancelled() and not opening.exception():
        await opening.result().http.close()
