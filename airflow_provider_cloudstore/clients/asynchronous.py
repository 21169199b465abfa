"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers, and tasks that do many calls at once.

All users of one connection in one event loop share one session: thousands of waiters in a triggerer open a handful of sockets.
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

from airflow_provider_cloudstore.clients.reasons import MalformedResponse, failure_of
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
"""Sockets that one shared session opens at the most, where its users do not say otherwise."""
_KEEP_ALIVE = 60.0


class Throttle(Protocol):
    """What says when a request may be sent, for many calls at once."""

    async def acquire(self) -> None:
        """Wait until the next request may be sent."""

    def record_success(self) -> None:
        """Note that a request that was let through succeeded."""

    def record_failure(self, error: CloudStoreError) -> bool:
        """Note that a request that was let through failed.

        :param error: how.
        :returns: whether to send it again, at no cost to the call, once :meth:`acquire` lets it.
        """


class AsyncClient:
    """The operations over a session.

    :param settings: the address, the token, the time limits.
    :param reload: reads the settings again; asked once in a call whose token was refused.
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
        """Send a call's requests until one of them settles it.

        :param call: what to do.
        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: is given one line before each pause.
        :param throttle: says when each request may be sent, where many calls share one.
        :raises CloudStoreError: if it failed for good, its attempts or its time are used up.
        """
        began = time.monotonic()
        try:
            return await self._admitted(call, budget, throttle)
        except CloudStoreError as error:
            if not error.retryable:
                raise
            failed: CloudStoreError | None = error
        # Built only now: most calls succeed at once. The policy sees the attempt above as its first one.
        ends_at = began + budget
        async for attempt in AsyncRetrying(**retry_policy(call, ends_at - time.monotonic(), on_retry)):
            with attempt:
                if failed:
                    first, failed = failed, None
                    raise first
                result = await self._admitted(call, ends_at - time.monotonic(), throttle)
        return result

    async def _admitted(self, call: Call[T], time_left: float, throttle: Throttle | None) -> T:
        """One attempt that counts: what the throttle takes on itself is sent again when the throttle lets it."""
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

        :param call: what to do.
        :param time_left: seconds that it may take, if the connection's timeout is not shorter.
        :raises CloudStoreError: if this attempt failed.
        """
        if call.token_rejected:
            call.replace_credentials(await self._reload())
        async with self._session.slots:
            return call.handle_outcome(await self._send(call.request(), time_left))

    async def _send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """Send one request. A library's exception ends here: it is not even the context of what is raised later."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        ends_at, left = time.monotonic() + limit, limit
        sent_at = pendulum.now("UTC")
        while True:
            under_way = _UnderWay()
            _under_way.set(under_way)  # read in this same task
            try:
                return await self._exchange(request, left, sent_at)
            except _StaleConnection:  # it is closed, and nothing was sent over it
                left = ends_at - time.monotonic()
            except aiohttp.ClientHttpProxyError as error:
                return connect_refused(error.status)
            except Exception as error:  # noqa: BLE001  (whatever a library raises, it ends here, with a reason)
                return failure_of(error, sent=under_way.connection is not None, limit=limit)
            finally:
                under_way.end()

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
        ) as answer:
            headers = messages.headers_of((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.raw_headers)
            usable = messages.is_final(answer.status) and messages.is_unambiguous(answer.status, headers)
            if not usable or len(answer.raw_headers) > messages.MAX_HEADER_LINES:
                answer.close()
                raise MalformedResponse
            body = bytearray()
            while not answer.content.at_eof():
                body += await answer.content.readany()
                if len(body) > messages.MAX_BODY_BYTES:
                    answer.close()
                    break
            else:
                if broken := answer.content.exception():  # it is at its end as well, where nothing is left to read
                    raise broken
        too_large = len(body) > messages.MAX_BODY_BYTES
        return Response(
            answer.status, headers, bytes(body[: messages.MAX_BODY_BYTES]), sent_at, pendulum.now("UTC"), too_large=too_large
        )


@functools.lru_cache(maxsize=16)
def _timeout(limit: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=max(0.001, limit), connect=min(limit, messages.CONNECT_TIMEOUT))


class _StaleConnection(Exception):
    """Something came over an idle connection, or it ended: it must not carry another request."""


_BLANK_LINE = re.compile(rb"\n\r?\n")
_EMPTY = 204
_EMPTY_RESPONSE = b"HTTP/1.1 204 No Content\r\n\r\n"


class _Connection(ResponseHandler):
    """A connection that closes at a byte that is not due: one of no answer, or one too many of an answer."""

    carries: _UnderWay | None = None
    between_responses = True
    has_head = False
    body: aiohttp.StreamReader | None = None
    chunks: framing.Chunks | None = None  # of a body that comes in chunks
    head = b""  # of the next response, as far as it has come
    bytes_after: int | None = None  # what is still to come of a body whose length is known
    bytes_due = messages.MAX_HEAD_BYTES
    interim_due = messages.MAX_INTERIM_RESPONSES

    def set_response_params(self, **params: Any) -> None:
        # Before a new parser takes its place: one that holds the beginning of another answer cannot read a whole one.
        if self._parser is not None and self.bytes_after != 0:
            try:
                messages, _, _ = self._parser.feed_data(_EMPTY_RESPONSE)
            except HttpProcessingError:
                messages = []
            self.between_responses = [message.code for message, _ in messages] == [_EMPTY]
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp asks itself to read on what it put by while the body was full
            super().data_received(data)
            return
        self.bytes_due -= len(data)
        if self.bytes_due < 0:
            self._end()
            return
        while data and not self.has_head and self._parser:
            data = self._receive_head(data)
        if data and self.chunks and not self.chunks.accept(data):
            self._break_body(MalformedResponse())
            self._end()
        elif data:
            if self.bytes_after is not None:
                self.bytes_after -= len(data)
            super().data_received(data)

    def _receive_head(self, data: bytes) -> bytes:
        """Read on until a head ends; what is behind it is returned, because a parser that fails there loses the response.

        aiohttp's parser reads what others do not: RTSP, blank lines before a response.
        """
        before = len(self.head)
        self.head += data
        end = _BLANK_LINE.search(self.head, max(0, before - 2))
        rest = b"" if end is None else self.head[end.end() :]
        if end is not None and not framing.is_head(self.head[: end.end()]):
            super().set_exception(MalformedResponse())
            self._end()
            return b""
        super().data_received(data[: len(data) - len(rest)])
        if end is not None:
            self.head = b""
        return rest

    def feed_data(self, data: Any, size: int = 0) -> None:
        message, body = data
        known = framing.is_status_line(self.head)
        if messages.is_interim(message.code):
            self.interim_due -= 1
        else:
            self.has_head, self.body = True, body
            self.bytes_due += messages.MAX_WIRE_BYTES
            length = message.headers.get("Content-Length", "")
            counted = messages.has_body(message.code) and not message.chunked and re.fullmatch("[0-9]{1,18}", length)
            self.chunks = framing.Chunks() if message.chunked else None
            self.bytes_after = int(length) if counted else None
        if known and self.interim_due >= 0:
            super().feed_data(data, size)
        else:
            self._end()

    def set_exception(self, exc: Any, *args: Any) -> None:
        super().set_exception(exc, *args)
        # Else who reads a body that breaks off in bytes that are no chunk would wait for more of it.
        if isinstance(exc, HttpProcessingError):
            self._break_body(MalformedResponse())

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None:  # aiohttp takes a reset for the end of a body without a length
            self._break_body(exc)
        super().connection_lost(exc)

    def _break_body(self, error: BaseException) -> None:
        if self.body is not None and not self.body.is_eof():
            self.body.set_exception(error)

    def _end(self) -> None:
        if not self.has_head:
            self._parser = None  # it would make headers of all that it has
        if self.transport:
            self.transport.abort()

    @property
    def stale(self) -> bool:
        """Whether something has come since the last answer, or the other side has gone."""
        if self.carries is None:
            return False  # a new one: what there may be to read is of its TLS handshake
        sock = self.transport.get_extra_info("socket") if self.transport else None
        if sock is None or self.should_close or not self.between_responses:
            return True
        waiting = select.poll()
        waiting.register(sock.fileno(), select.POLLIN)
        return bool(waiting.poll(0))


@dataclass(slots=True, eq=False)
class _UnderWay:
    """One request, and the connection over which it may have left."""

    connection: _Connection | None = None

    def begin(self, connection: _Connection) -> None:
        if connection.stale:
            raise _StaleConnection
        self.connection, connection.carries, connection.has_head = connection, self, False
        connection.head, connection.body, connection.bytes_after, connection.chunks = b"", None, None, None
        connection.bytes_due, connection.interim_due = messages.MAX_HEAD_BYTES, messages.MAX_INTERIM_RESPONSES

    def end(self) -> None:
        if self.connection and self.connection.carries is self:  # else another request has it already
            self.connection.bytes_due = 0


_under_way: ContextVar[_UnderWay] = ContextVar("_under_way")


class _Request(aiohttp.ClientRequest):
    """A request that notes when it begins to leave: what aiohttp raises does not tell."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        _under_way.get().begin(conn.protocol)
        return await super().send(conn)


@dataclass(frozen=True, slots=True)
class Session:
    """An open HTTP session and the turns to use it: who waits for a socket does not use up the time of its request."""

    http: aiohttp.ClientSession
    slots: asyncio.Semaphore
    proxy: Proxy | None


@dataclass(slots=True)
class _Shared:
    opening: asyncio.Task[Session]
    users: int = 0


_shared: dict[tuple[Any, ...], _Shared] = {}
_closing: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def shared_session(
    settings: Settings, limit: int = POOL_LIMIT, *, fresh_connections: bool = False
) -> AsyncIterator[Session]:
    """The session of all who use the same address from the same event loop: opened for the first, closed after the last.

    Safe against cancellation at every ``await``: opening and closing are tasks of their own, which a cancelled user leaves
    to the others.

    :param settings: the address, and how to verify it.
    :param limit: sockets that it opens at the most.
    :param fresh_connections: a connection of its own for each request.
    """
    loop = asyncio.get_running_loop()
    key = (loop, os.getpid(), settings.base_url, settings.verify, settings.proxy, limit, fresh_connections)
    shared = _shared.get(key)
    if shared is None:
        shared = _shared[key] = _Shared(loop.create_task(_open(settings, limit, fresh_connections)))
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
    context = await asyncio.to_thread(tls_context, settings.verify) if tls else False  # it reads files
    kept: dict[str, Any] = {"force_close": True} if fresh else {"keepalive_timeout": _KEEP_ALIVE}
    connector = aiohttp.TCPConnector(limit=limit, ssl=context, **kept)
    # Neither can be said in a documented way: which class a connection is of, and that a GET is not sent again behind our back.
    factory: Any = functools.partial(_Connection, loop=asyncio.get_running_loop())
    connector._factory = factory
    http = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Content-Type"),
        request_class=_Request,
        max_line_size=messages.MAX_LINE_BYTES,
        max_field_size=messages.MAX_LINE_BYTES,
    )
    http._retry_connection = False
    return Session(http, asyncio.Semaphore(limit), proxy)


async def _close(opening: asyncio.Task[Session]) -> None:
    await asyncio.wait([opening])
    if not opening.cancelled() and not opening.exception():
        await opening.result().http.close()
