"""Builds the ``requests.Session`` of one thread, over which calls and downloads are sent.

It follows no redirect, keeps no cookie and reads nothing from the environment but the proxy. Its connections connect and read
within the request's deadline, record whether the request was sent, and write its target, so that no library can log its query.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from concurrent.futures import Future
from contextvars import copy_context
from functools import cached_property, partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError

from airflow_provider_cloudstore.clients.exchange import InFlight, current
from airflow_provider_cloudstore.clients.sockets import ResponseSocket, TlsResponseSocket
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol.framing import MalformedResponse
from airflow_provider_cloudstore.protocol.proxies import Proxy, environment_proxy
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings


def new_session(settings: Settings) -> requests.Session:
    """A session for one thread.

    :param settings: the connection: its certificates and its proxy apply to every request of the session.
    """
    session = _Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    adapter = _Adapter(settings)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: a redirect is a response like any other."""


class _Adapter(HTTPAdapter):
    """Chooses a request's proxy and connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pools: dict[tuple[Secret | None, str, str], HTTPConnectionPool] = {}
        super().__init__()

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request, which has limits of its own unless it is a user's own."""
        in_flight = current.get(None) or InFlight()
        token = current.set(in_flight)
        try:
            return super().send(request, *args, **kwargs)
        finally:
            current.reset(token)

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        """The pool of the request's host: through the connection's proxy, and with its certificates."""
        url = str(request.url)
        parts, in_flight, proxy = urlsplit(url), current.get(), self._proxy(url)
        in_flight.connected, in_flight.through_proxy = False, proxy is not None
        key = proxy, parts.scheme, parts.netloc
        if key not in self._pools:
            self._pools[key] = self._new_pool(Proxy.of(proxy), url)
        return self._pools[key]

    def _new_pool(self, proxy: Proxy | None, url: str) -> HTTPConnectionPool:
        """A pool that knows its proxy, but none of the proxy's credentials by its URL."""
        # Loading the certificates takes longer than downloading a small file.
        tls = self._tls if "https" in (urlsplit(url).scheme, proxy and urlsplit(proxy.url).scheme) else None
        manager = urllib3.PoolManager(ssl_context=tls)
        if proxy:
            manager = urllib3.ProxyManager(proxy.url, proxy_headers=proxy.headers, ssl_context=tls, proxy_ssl_context=tls)
        manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
        return manager.connection_from_url(url)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = tls_context(self._settings)
        context.sslsocket_class = TlsResponseSocket
        wrap = partial(context.wrap_socket, suppress_ragged_eofs=False)  # else a reset looks like a close
        context.wrap_socket = wrap  # type: ignore[method-assign]
        return context

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        """The URL that urllib3 gets, and may log: without path and query. The connection sends the whole target."""
        parts, in_flight = urlsplit(str(request.url)), current.get()
        forwarded = in_flight.through_proxy and parts.scheme == "http"
        origin = f"http://{parts.netloc.rpartition('@')[2]}" if forwarded else ""
        in_flight.target = origin + (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return f"{origin}/"

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the TLS context has the trusted certificates."""

    def close(self) -> None:
        """Close every connection."""
        super().close()
        while self._pools:
            self._pools.popitem()[1].close()

    def _proxy(self, url: str) -> Secret | None:
        settings = self._settings
        if url.startswith(f"{settings.base_url}/") or (settings.proxy and not settings.proxy_is_inherited):
            return settings.proxy
        return environment_proxy(url, os.environ)


class _Connection(HTTPConnection):
    """A connection that tells the request in flight what happens to it."""

    def connect(self) -> None:
        in_flight = current.get()
        self._connect_within(in_flight.time_left())
        in_flight.connected = True

    def _connect_within(self, seconds: float | None) -> None:
        """Connect in a thread of its own: nothing can interrupt the look-up of a name."""
        done: Future[None] = Future()
        to_host = super().connect

        def connect() -> None:
            try:
                to_host()
            except BaseException as error:  # noqa: BLE001  (raised in the waiting thread)
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=copy_context().run, args=(connect,), daemon=True).start()
        try:
            done.result(seconds)
        except BaseException as error:
            done.add_done_callback(lambda _: self.close())
            if isinstance(error, TimeoutError) and not done.done():
                raise ConnectTimeoutError(self, "timed out") from None
            raise

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        timeout, sock = sock.gettimeout(), ResponseSocket(fileno=sock.detach())
        sock.settimeout(timeout)
        return sock

    def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        in_flight = current.get()
        in_flight.connected = not self.is_closed
        super().putrequest(method, in_flight.target, *args, **kwargs)

    def getresponse(self) -> Any:
        in_flight = current.get()
        in_flight.connected, in_flight.status = True, 0
        response = super().getresponse()
        inside_tls = self.proxy is not None and self.proxy.scheme == "https"  # where urllib3 has a socket of its own
        if not in_flight.status and not (inside_tls and isinstance(self, HTTPSConnection)):
            raise MalformedResponse("urllib3 did not read the response from the connection's socket")
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
