"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers and batches.

All users of a connection in an event loop share one session, so thousands of waits in a triggerer open a handful of sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, pause_before_retry
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.framing import IncompleteResponse, MalformedResponse, ResponseFilter
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.proxies import Proxy
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

POOL_LIMIT = 32
"""Default limit of the sockets that a shared session opens."""
_KEEP_ALIVE = 60.0


class AsyncClient:
    """Performs calls as ``BlockingClient`` does, over the session of :func:`shared_session`."""

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
        attempt: Callable[[Call[T], float], Awaitable[T]] | None = None,
    ) -> T:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.perform`.

        :param attempt: makes an attempt in place of :meth:`attempt`, and may wait before it does.
        """
        make_attempt, ends_at = attempt or self.attempt, time.monotonic() + budget
        while True:
            try:
                return await make_attempt(call, ends_at - time.monotonic())
            except CloudStoreError as error:
                pause = pause_before_retry(call, error, ends_at - time.monotonic(), on_retry)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def attempt(self, call: Call[T], time_left: float) -> T:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.attempt`."""
        if call.token_rejected:
            call.replace_credentials(await self._reload())
        async with self._session.slots:
            return call.handle_outcome(await self.send(call.request(), time_left))

    async def send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.send`."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        in_flight = _InFlight()
        _in_flight.set(in_flight)  # read in this task
        try:
            return await self._exchange(request, limit, in_flight)
        except aiohttp.ClientHttpProxyError as error:
            return connect_refused(error.status)
        except Exception as error:  # noqa: BLE001  (library exceptions end here, with a reason)
            cause, through_proxy = in_flight.failure or error, self._session.proxy is not None
            self._session.connector.note_failure(in_flight, cause)
            return transport_failure(cause, sent=in_flight.is_sent, limit=limit, through_proxy=through_proxy)

    async def _exchange(self, request: Request, limit: float, in_flight: _InFlight) -> Response:
        """Library exceptions end in the caller: they are not even the context of a later error."""
        proxy = self._session.proxy
        forwarded = proxy.headers if proxy and request.url.startswith("http:") else {}
        sent = time.time()
        async with self._session.http.request(
            request.method,
            URL(request.url, encoded=True),
            headers={**request.headers, **forwarded},
            data=request.body,
            timeout=aiohttp.ClientTimeout(total=limit, connect=min(limit, messages.CONNECT_TIMEOUT)),
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy.headers if proxy else None,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            while len(body) <= messages.MAX_BODY_BYTES and not response.content.at_eof():
                body += await response.content.readany()
            if len(body) > messages.MAX_BODY_BYTES:
                response.close()
            elif failure := in_flight.failure or response.content.exception():  # at_eof() is also true after an error
                raise failure
        return Response(response.status, in_flight.filter.headers, bytes(body), sent, time.time())


class _InFlight:
    """One request, as its connection sees it.

    :ivar is_sent: whether it may have been sent.
    :ivar is_reusing: whether it was sent over a connection that had carried another request.
    :ivar failure: what ended its response early.
    """

    def __init__(self) -> None:
        self.is_sent = self.is_reusing = False
        self.failure: BaseException | None = None
        self.filter = ResponseFilter(messages.MAX_WIRE_BYTES)


_in_flight: ContextVar[_InFlight] = ContextVar("_in_flight")


class _Connector(aiohttp.TCPConnector):
    """Lends connections over which no byte has arrived while they were idle, each watched by a :class:`_Connection`."""

    fresh_after_loss = lends_once = False

    def note_failure(self, in_flight: _InFlight, cause: BaseException) -> None:
        """Lend each connection once from now on, if asked to, when one that was kept alive ended without a response."""
        is_lost = not in_flight.filter.status and not isinstance(cause, (TimeoutError, MalformedResponse))
        if self.fresh_after_loss and in_flight.is_reusing and is_lost and not self.lends_once:
            self.lends_once = True
            log.warning("An upload was lost on a kept-alive connection: from now on each upload opens a connection of its own.")

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        """A connection for the request in flight."""
        in_flight = _in_flight.get()
        if in_flight.is_sent:  # aiohttp itself would send a lost GET once more
            raise aiohttp.ServerDisconnectedError
        while True:
            lent = await super().connect(*args, **kwargs)
            transport: Any = lent.transport
            connection = transport.get_protocol()
            is_used = isinstance(connection, _Connection)
            if not is_used:
                connection = _Connection(transport, connection)
                transport.set_protocol(connection)
            elif self.lends_once or connection.is_stale():
                transport.abort()
                lent.close()
                continue
            in_flight.is_sent, in_flight.is_reusing, connection.in_flight = True, is_used, in_flight
            return lent


class _Connection(asyncio.Protocol):
    """Stands between a connection and aiohttp, which gets what :class:`ResponseFilter` passes on."""

    in_flight: _InFlight

    def __init__(self, transport: Any, protocol: Any) -> None:
        self._transport, self._protocol = transport, protocol
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        seen = self.in_flight.filter
        try:
            if passed := seen.feed(data):
                self._protocol.data_received(passed)
        except MalformedResponse as error:
            self.in_flight.failure = error
        if seen.surplus or self.in_flight.failure:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        in_flight = self.in_flight
        if not in_flight.failure and not in_flight.filter.ended:
            try:
                in_flight.filter.end()
                in_flight.failure = exc  # aiohttp takes a reset for the end of a body of unknown length
            except IncompleteResponse as error:
                in_flight.failure = exc or error
        self._protocol.connection_lost(exc)

    def is_stale(self) -> bool:
        """Whether bytes have arrived since the last response, or the server has closed the connection."""
        return self._transport.is_closing() or bool(self._poll.poll(0))


@dataclass(frozen=True, slots=True)
class Session:
    """An open HTTP session, and its slots: waiting for a slot does not count towards a request's timeout."""

    http: aiohttp.ClientSession
    connector: _Connector
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
    settings: Settings, limit: int = POOL_LIMIT, *, fresh_after_loss: bool = False
) -> AsyncIterator[Session]:
    """The session shared by all users of an address in this event loop: opened with the first, closed after the last.

    Opening and closing are tasks of their own, so cancelling one user at any ``await`` does not affect the others.

    :param settings: the address, and how to verify it.
    :param limit: maximum number of sockets.
    :param fresh_after_loss: whether to open a new connection for each request once one was lost on a kept-alive connection.
    """
    loop = asyncio.get_running_loop()
    key = (loop, os.getpid(), settings.base_url, settings.verify, settings.proxy, limit, fresh_after_loss)
    shared = _shared.get(key)
    if shared is None:
        shared = _shared[key] = _SharedSession(loop.create_task(_open(settings, limit, fresh_after_loss)))
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


async def _open(settings: Settings, limit: int, fresh_after_loss: bool) -> Session:
    proxy = Proxy.of(settings.proxy)
    tls = any(url.startswith("https:") for url in (settings.base_url, proxy.url if proxy else ""))
    context = await asyncio.to_thread(tls_context, settings) if tls else False  # reads files
    connector = _Connector(limit=limit, ssl=context, keepalive_timeout=_KEEP_ALIVE)
    connector.fresh_after_loss = fresh_after_loss
    http = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Content-Type"),
        max_line_size=messages.MAX_LINE_BYTES,
        max_field_size=messages.MAX_LINE_BYTES,
    )
    return Session(http, connector, asyncio.Semaphore(limit), proxy)


async def _close(opening: asyncio.Task[Session]) -> None:
    await asyncio.wait([opening])
    if not opening.cancelled() and not opening.exception():
        await opening.result().http.close()
