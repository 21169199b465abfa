"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers and batches.

All users of a connection in an event loop share one session, so thousands of waits in a triggerer open a handful of sockets.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import aiohttp
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import may_have_been_sent, never_sent
from airflow_provider_cloudstore.clients.route import MAX_IDLE, ca_bundle, environment_proxy
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET, Attempts, pause_before_retry
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure, connect_refused
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)


class AsyncClient:
    """Performs operations as ``BlockingClient`` does, over the session of :func:`shared_session`.

    :ivar settings: the connection's settings as last read.
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
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.perform`."""
        ends_at = time.monotonic() + budget
        attempts = Attempts(max_attempts or self.settings.max_attempts)
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
            attempts = attempts.after(outcome)

    async def attempt(
        self, operation: Operation[T], settings: Settings, attempts: Attempts, time_left: float
    ) -> T | CloudStoreError:
        """Send one request of an operation, and return its result or error.

        :param attempts: the attempts so far, including this attempt.
        :param time_left: maximum seconds for the request, unless the connection's timeout is shorter.
        """
        async with self._session.slots:
            return operation.interpret(await self.send(operation.request(settings), time_left), settings, attempts)

    async def has_new_token(self, refused: Settings) -> bool:
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.has_new_token`."""
        if self.settings.access_token == refused.access_token:
            self.settings = await self._reload(refused.access_token)
        return self.settings.access_token != refused.access_token

    async def send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.send`; here, one limit covers all steps."""
        limit = max(0.001, min(self.settings.timeout, time_left))
        # Shorter than the total limit: if both expire at once, aiohttp does not say that connecting took too long.
        to_connect = min(limit / 2, messages.CONNECT_TIMEOUT)
        body, sent = bytearray(), time.time()
        try:
            async with self._session.http.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                timeout=aiohttp.ClientTimeout(limit, connect=to_connect),
                ssl=self._session.tls.result(),
                proxy=self._session.proxy,
                allow_redirects=False,
            ) as response:
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > messages.MAX_BODY_BYTES:
                        response.close()
                        break
        except aiohttp.ClientHttpProxyError as error:
            return connect_refused(error.status)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:  # raised before anything is sent
            return never_sent(error, through_proxy=bool(self._session.proxy))
        except Exception as error:  # noqa: BLE001  (a library's exception becomes a TransportFailure)
            if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
                self._session.stop_reusing()
            return may_have_been_sent(error, limit)
        return Response(response.status, messages.headers_of(response.headers.items()), bytes(body), sent, time.time())


class Session:
    """The HTTP session to one address, and its slots: waiting for a slot does not count towards a request's timeout.

    A connection that was idle for a second is not reused, because the server may be closing it. Once a request has been lost, no
    connection is reused any more.
    """

    def __init__(self, settings: Settings, limit: int) -> None:
        self.users = 0
        self.slots = asyncio.Semaphore(limit)
        proxy = settings.proxy or environment_proxy(settings.base_url)
        self.proxy = proxy.reveal() if proxy else None
        self.tls = asyncio.create_task(asyncio.to_thread(_tls, settings))
        self.http = _new_http(keepalive_timeout=MAX_IDLE)
        self._opened = [self.http]

    def stop_reusing(self) -> None:
        """Open a new connection for each request from now on: the server may close idle connections, as when it reloads."""
        if len(self._opened) == 1:
            log.warning("A connection broke before its response: from now on each request opens a connection of its own.")
            self.http = _new_http(force_close=True)
            self._opened.append(self.http)

    async def close(self) -> None:
        """Close every connection."""
        for http in self._opened:
            await http.close()


def _tls(settings: Settings) -> ssl.SSLContext | Literal[False]:
    bundle = ca_bundle(settings)
    return ssl.create_default_context(cafile=bundle) if bundle else False


def _new_http(**connections: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, **connections),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


_shared: dict[tuple[Any, ...], Session] = {}


@asynccontextmanager
async def shared_session(settings: Settings, limit: int = 32) -> AsyncIterator[Session]:
    """Share one session among all users of an address in this event loop: the first user opens it, and the last one closes it.

    A separate task loads the certificates, so that cancelling one user does not affect the others.

    :param limit: maximum number of concurrent requests.
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
            await session.close()
