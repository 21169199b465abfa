"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers and batches.

All users of a connection in an event loop share one session, so thousands of waits in a triggerer open a handful of sockets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.clients.route import MAX_IDLE, proxy_url, tls_context
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET, Attempts, pause_before_retry
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure, connect_refused
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

_MAX_LINE = 65_536  # bytes of a line of a response's head, as in http.client


class AsyncClient:
    """Performs operations as ``BlockingClient`` does, over the session of :func:`shared_session`.

    :ivar settings: the connection as last read.
    """

    def __init__(
        self,
        settings: Settings,
        reload: Callable[[Secret], Awaitable[Settings]],
        session: Session,
    ) -> None:
        self.settings = settings
        self._reload = reload
        self._session = session

    async def perform(
        self,
        operation: Operation[T],
        *,
        budget: float = DEFAULT_BUDGET,
        max_attempts: int | None = None,
    ) -> T:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.perform`."""
        ends_at = time.monotonic() + budget
        attempts = Attempts(max_attempts or self.settings.max_attempts, renewals=self.settings.renewals)
        while True:
            attempts, used = attempts.next(), self.settings
            outcome = await self.attempt(operation, used, attempts, ends_at - time.monotonic())
            if not isinstance(outcome, CloudStoreError):
                return outcome
            pause = pause_before_retry(outcome, attempts, ends_at - time.monotonic())
            if pause is None:
                raise outcome
            await asyncio.sleep(pause)
            if attempts.needs_token(outcome) and not await self.has_new_token(used):
                raise outcome
            attempts = attempts.after(outcome, used.access_token)

    async def attempt(
        self, operation: Operation[T], settings: Settings, attempts: Attempts, time_left: float
    ) -> T | CloudStoreError:
        """Send one request of an operation; what it ended with.

        :param attempts: those so far, this one included.
        :param time_left: maximum seconds, if the connection's timeout is not shorter.
        """
        async with self._session.slots:
            return operation.interpret(await self.send(operation.request(settings), time_left), settings, attempts)

    async def has_new_token(self, refused: Settings) -> bool:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.has_new_token`."""
        if self.settings.access_token == refused.access_token:
            self.settings = await self._reload(refused.access_token)
        return self.settings.access_token != refused.access_token

    async def send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """As :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.send`, but the limit is that of the whole."""
        limit = max(0.001, min(self.settings.timeout, time_left))
        in_flight = SimpleNamespace(is_sent=True, is_reusing=True)  # what is noted below is not noted of a connection in use
        body, sent = bytearray(), time.time()
        try:
            async with self._session.http.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                timeout=aiohttp.ClientTimeout(total=limit, connect=min(limit, messages.CONNECT_TIMEOUT)),
                ssl=self._session.tls.result(),
                proxy=self._session.proxy,
                allow_redirects=False,
                trace_request_ctx=in_flight,
            ) as response:
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > messages.MAX_BODY_BYTES:
                        response.close()
                        break
        except aiohttp.ClientHttpProxyError as error:
            return connect_refused(error.status)
        except Exception as error:  # noqa: BLE001  (library exceptions end here, with a reason)
            is_lost = isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, TimeoutError)
            if is_lost and in_flight.is_reusing and request.method != "GET":
                self._session.stop_reusing()
            return transport_failure(error, sent=in_flight.is_sent, limit=limit, through_proxy=bool(self._session.proxy))
        return Response(response.status, messages.headers_of(response.headers.items()), bytes(body), sent, time.time())


class Session:
    """Open HTTP sessions to one address, and their slots: waiting for a slot does not count towards a request's timeout.

    Connections idle for a second are not reused, because the server may be closing them; none is after the first upload that was
    lost on a reused one.
    """

    def __init__(self, settings: Settings, limit: int) -> None:
        self.users = 0
        self.slots = asyncio.Semaphore(limit)
        self.proxy = proxy_url(settings.proxy) if settings.proxy else None
        self.tls = asyncio.create_task(asyncio.to_thread(tls_context, settings))
        self.http = _new_http(keepalive_timeout=MAX_IDLE)
        self._opened = [self.http]

    def stop_reusing(self) -> None:
        """Open a new connection for each request from now on."""
        if len(self._opened) == 1:
            log.warning("An upload was lost on a kept-alive connection: from now on each upload opens a connection of its own.")
            self.http = _new_http(force_close=True)
            self._opened.append(self.http)

    async def close(self) -> None:
        """Close every connection."""
        for http in self._opened:
            await http.close()


def _new_http(**connections: Any) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(_note(is_sent=False, is_reusing=False))
    trace.on_connection_create_end.append(_note(is_sent=True))
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, **connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
        trace_configs=[trace],
    )


def _note(**facts: bool) -> Callable[[aiohttp.ClientSession, Any, Any], Awaitable[None]]:
    """Note what an event says of the connection of a request."""

    async def note(_: aiohttp.ClientSession, context: Any, event: object) -> None:
        vars(context.trace_request_ctx).update(facts)

    return note


_shared: dict[tuple[Any, ...], Session] = {}
_closing: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def shared_session(settings: Settings, limit: int = 32) -> AsyncIterator[Session]:
    """The session shared by all users of an address in this event loop: opened with the first, closed after the last.

    Opening and closing are tasks of their own, so cancelling one user at any ``await`` does not affect the others.

    :param limit: maximum number of requests at once.
    """
    key = (asyncio.get_running_loop(), settings.base_url, settings.verify, settings.proxy, limit)
    if key not in _shared:
        _shared[key] = Session(settings, limit)
    session = _shared[key]
    session.users += 1
    try:
        await asyncio.shield(session.tls)
        yield session
    finally:
        session.users -= 1
        if not session.users:
            del _shared[key]
            closing = asyncio.create_task(session.close())
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.shield(closing)
