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
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import pendulum
from tenacity import AsyncRetrying
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import reason_of
from airflow_provider_cloudstore.clients.trust import CONNECT_TIMEOUT, tls_context
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, retry_policy
from airflow_provider_cloudstore.protocol.errors import ConfigurationError
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.values import MAX_BODY_BYTES, Break, Failure, Request, Response, headers_of

T = TypeVar("T")

log = logging.getLogger(__name__)

POOL_LIMIT = 32
"""Sockets that one shared session opens at the most, where its users do not say otherwise."""
_KEEP_ALIVE = 60.0
# aiohttp keeps what happens before a connection stands apart, TLS and proxy included.
_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_CHUNK = 16 * 1024


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

    async def perform(self, call: Call[T], *, budget: float = DEFAULT_BUDGET, on_retry: Callable[[str], None] = log.warning) -> T:
        """Send a call's requests until one of them settles it.

        :param call: what to do.
        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: is given one line before each pause.
        :raises CloudStoreError: if it failed for good, its attempts or its time are used up.
        """
        ends_at = time.monotonic() + budget
        async for attempt in AsyncRetrying(**retry_policy(call, budget, on_retry)):
            with attempt:
                result = await self.attempt(call, ends_at - time.monotonic())
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
                    headers_of((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.raw_headers),
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
async def shared_session(settings: Settings, limit: int = POOL_LIMIT) -> AsyncIterator[Session]:
    """The session of all who use the same address from the same event loop: opened for the first, closed after the last.

    Safe against cancellation at every ``await``: opening and closing are tasks of their own, which a cancelled user leaves
    to the others.

    :param settings: the address, and how to verify it.
    :param limit: sockets that it opens at the most.
    """
    loop = asyncio.get_running_loop()
    key = (loop, settings.base_url, settings.verify, settings.proxy, limit)
    shared = _shared.get(key)
    if shared is None:
        shared = _shared[key] = _Shared(loop.create_task(_open(settings, limit)))
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


async def _open(settings: Settings, limit: int) -> Session:
    try:
        context = await asyncio.to_thread(tls_context, settings.verify)  # it reads files
    except OSError:  # ssl.SSLError is one
        context = None
    if context is None:
        raise ConfigurationError("the CA bundle of extra 'verify', or of REQUESTS_CA_BUNDLE, cannot be read")
    connector = aiohttp.TCPConnector(limit=limit, ssl=context, keepalive_timeout=_KEEP_ALIVE)
    http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
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
