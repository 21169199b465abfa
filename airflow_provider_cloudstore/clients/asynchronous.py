"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers, and tasks that do many calls at once.

All users of one connection in one event loop share one session: thousands of waiters in a triggerer open a handful of sockets.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import pendulum
from tenacity import AsyncRetrying
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import reason_of
from airflow_provider_cloudstore.clients.trust import CONNECT_TIMEOUT, tls_context
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, retry_policy
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, ConfigurationError
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.values import MAX_BODY_BYTES, Break, Failure, Request, Response

T = TypeVar("T")

log = logging.getLogger(__name__)

POOL_LIMIT = 32
"""Sockets that one shared session opens at the most, where its users do not say otherwise."""
_KEEP_ALIVE = 60.0
# aiohttp keeps what happens before a connection stands apart, TLS and proxy included.
_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_CHUNK = 16 * 1024


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
            if not error.again:
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
        if call.token_refused:
            call.renew(await self._reload())
        async with self._session.turn:
            return call.finish(await self._send(call.request(), time_left))

    async def _send(self, request: Request, time_left: float) -> Response | Failure:
        """Send one request. A library's exception ends here: it is not even the context of what is raised later."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        sent_at = pendulum.now("UTC")
        try:
            async with self._session.http.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                # The time to connect is the shorter one: it alone tells that the request was never sent.
                timeout=aiohttp.ClientTimeout(total=limit, sock_connect=min(0.9 * limit, CONNECT_TIMEOUT)),
                proxy=self._session.proxy,
                allow_redirects=False,
                skip_auto_headers=("Accept", "Content-Type"),
            ) as answer:
                body = b""
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        answer.close()
                        break
                return Response(
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    body[:MAX_BODY_BYTES],
                    sent_at,
                    pendulum.now("UTC"),
                    too_large=len(body) > MAX_BODY_BYTES,
                )
        except _NEVER_SENT as error:
            return Failure(Break.NEVER_SENT, f"no connection to the service: {reason_of(error)}")
        except TimeoutError:
            return Failure(Break.OUTCOME_UNKNOWN, f"no whole answer within {limit:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failure(Break.OUTCOME_UNKNOWN, reason_of(error))


@dataclass(frozen=True, slots=True)
class Session:
    """An open HTTP session and the turns to use it: who waits for a socket does not use up the time of its request."""

    http: aiohttp.ClientSession
    turn: asyncio.Semaphore
    proxy: str | None = field(repr=False)


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
    key = (loop, settings.base_url, settings.verify, settings.proxy, limit, fresh_connections)
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
    try:
        context = await asyncio.to_thread(tls_context, settings.verify)  # it reads files
    except OSError:  # ssl.SSLError is one
        context = None
    if context is None:
        raise ConfigurationError("the CA bundle of extra 'verify', or of REQUESTS_CA_BUNDLE, cannot be read")
    kept: dict[str, Any] = {"force_close": True} if fresh else {"keepalive_timeout": _KEEP_ALIVE}
    connector = aiohttp.TCPConnector(limit=limit, ssl=context, **kept)
    http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
    return Session(http, asyncio.Semaphore(limit), _proxy(settings))


async def _close(opening: asyncio.Task[Session]) -> None:
    await asyncio.wait([opening])
    if not opening.cancelled() and not opening.exception():
        await opening.result().http.close()


def _proxy(settings: Settings) -> str | None:
    """The connection's proxy, else the environment's. Not aiohttp's ``trust_env``, which adds what ``.netrc`` says."""
    if settings.proxy:
        return settings.proxy.reveal()
    parts = urlsplit(settings.base_url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)
