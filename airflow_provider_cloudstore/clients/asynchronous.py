"""Sends the protocol's requests with ``aiohttp``, for event loops: triggers and batches."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Self, TypeVar, cast

import aiohttp
from yarl import URL

from airflow_provider_cloudstore.clients.reasons import failure_in_doubt, failure_unsent, tunnel_refused
from airflow_provider_cloudstore.clients.route import MAX_IDLE, ca_bundle, proxy_for
from airflow_provider_cloudstore.protocol import http
from airflow_provider_cloudstore.protocol.call import attempts_of
from airflow_provider_cloudstore.protocol.http import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")


class AsyncClient(AbstractAsyncContextManager["AsyncClient"]):
    """Performs operations as ``BlockingClient`` does, over few connections, which all tasks of an event loop may share.

    A connection that was idle for a second is not reused, because the server may be closing it.

    :param renew: returns the settings with another token, if there is one; None if the settings never change.
    :param limit: maximum number of concurrent requests. Waiting for the others does not count towards a request's timeout.
    :ivar settings: the connection's settings as last read. Proxy and certificates remain those of the first reading.
    """

    def __init__(self, settings: Settings, renew: Callable[[], Awaitable[Settings]] | None = None, limit: int = 32) -> None:
        self.settings = settings
        self._renew = renew
        self._renewing = asyncio.Lock()
        self._slots = asyncio.Semaphore(limit)

    async def __aenter__(self) -> Self:
        """Load the certificates, and find out the proxy.

        :raises ConfigurationError: if either cannot be used.
        """
        self._proxy = proxy_for(self.settings, self.settings.base_url)
        self._tls = await asyncio.to_thread(_tls, self.settings)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=MAX_IDLE), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def perform(
        self,
        operation: Operation[T],
        *,
        max_attempts: int = 0,
        permit: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.perform`.

        :param permit: waits until the next request may be sent.
        """
        attempts, answer = attempts_of(operation, self, max_attempts, permit), None
        try:
            while True:
                answer = await attempts.send(answer)
        except StopIteration as done:
            return cast("T", done.value)

    async def renew(self, old: Secret) -> bool:
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.renew`."""
        async with self._renewing:
            if self._renew and self.settings.access_token == old:
                self.settings = await self._renew()
        return self.settings.access_token != old

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def send(self, request: Request) -> Response | TransportFailure:
        """See :meth:`~airflow_provider_cloudstore.clients.blocking.BlockingClient.send`; here, one limit covers all steps."""
        async with self._slots:
            return await self._send(request)

    async def _send(self, request: Request) -> Response | TransportFailure:
        limit = self.settings.timeout
        # Shorter than the total limit: if both expire at once, aiohttp does not say that connecting took too long.
        to_connect = min(limit / 2, http.CONNECT_TIMEOUT)
        body, sent = bytearray(), time.time()
        try:
            async with self._session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                timeout=aiohttp.ClientTimeout(limit, connect=to_connect),
                ssl=self._tls,
                proxy=self._proxy.reveal() if self._proxy else None,
                allow_redirects=False,
            ) as response:
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > http.MAX_BODY_BYTES:
                        response.close()
                        break
        except aiohttp.ClientHttpProxyError as error:
            return tunnel_refused(error.status)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:  # raised before anything is sent
            return failure_unsent(error)
        except Exception as error:  # noqa: BLE001  (a library's exception becomes a TransportFailure)
            return failure_in_doubt(error, limit)
        return Response(
            response.status,
            {name.lower(): value.strip() for name, value in response.headers.items()},
            bytes(body),
            sent,
            time.time(),
        )


def _tls(settings: Settings) -> ssl.SSLContext | Literal[False]:
    bundle = ca_bundle(settings)
    return ssl.create_default_context(cafile=bundle) if bundle else False
