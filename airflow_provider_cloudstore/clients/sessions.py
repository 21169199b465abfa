"""Builds the ``requests.Session`` over which calls and downloads are sent.

It follows no redirect, keeps no cookie and reads nothing from the environment but the proxy. Its connections say whether a
request was sent, and refuse what ``http.client`` would misread.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from contextvars import ContextVar
from functools import cached_property
from http.client import UnknownTransferEncoding
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError, SSLError

from airflow_provider_cloudstore.clients.route import MAX_IDLE, environment_proxy, proxy_url, tls_context
from airflow_provider_cloudstore.protocol.settings import Settings

_HARMLESS = re.compile(r"[\w.:\[\]-]*|HTTP/[\d.]+")  # such as a host, a method and a status; no path
_MAX_THREADS = 64  # whose connections are kept
_sending = ContextVar("_sending", default=False)


def new_session(settings: Settings) -> requests.Session:
    """A session. The connection's certificates and proxy apply to every request that names no others."""
    for name in ("urllib3.connection", "urllib3.connectionpool"):
        logging.getLogger(name).addFilter(_hide_targets)
    session = _Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    adapter = _Adapter(settings)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _hide_targets(record: logging.LogRecord) -> bool:
    """Take paths, queries and headers out of what urllib3 logs of our requests: they may hold tokens."""
    if _sending.get():
        if isinstance(record.args, tuple):
            record.args = tuple(value if _HARMLESS.fullmatch(str(value)) else "***" for value in record.args)
        record.exc_info = None
    return True


class _Session(requests.Session):
    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request, whatever adapter it takes; what urllib3 logs meanwhile is ours."""
        mark = _sending.set(True)
        try:
            return super().send(request, **kwargs)
        finally:
            _sending.reset(mark)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: a redirect is a response like any other."""


class _Adapter(HTTPAdapter):
    """Chooses a request's proxy and certificates, unless it names its own, and the class of its connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__(pool_maxsize=_MAX_THREADS)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        settings = self._settings
        proxy = environment_proxy(str(request.url)) if settings.proxy_is_inherited else settings.proxy
        if proxy and not kwargs.get("proxies"):
            kwargs["proxies"] = {"all": proxy_url(proxy)}
        return super().send(request, *args, **kwargs)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        if proxy.startswith("https:"):
            options |= {"ssl_context": self._tls, "proxy_ssl_context": self._tls}
        return super().proxy_manager_for(proxy, **options)

    def build_connection_pool_key_attributes(self, request: requests.PreparedRequest, verify: Any, cert: Any = None) -> Any:
        host, tls = super().build_connection_pool_key_attributes(request, verify, cert)
        if verify is True and host["scheme"] == "https":
            return host, {**tls, "ssl_context": self._tls, "cert_reqs": self._tls.verify_mode}
        return host, tls

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the pool has the certificates, and ``requests`` would add its own to them."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _TlsConnection if pool.scheme == "https" else _Connection
        return pool

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Loaded once, for all pools."""
        return tls_context(self._settings)


class _Connection(HTTPConnection):
    """A connection that says whether a request was sent: what fails while it is made is a ``ConnectTimeoutError``."""

    _used = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the pool may reuse it: not if it was idle, as an upload that is lost on it would be unknown."""
        return time.monotonic() < self._used + MAX_IDLE and super().is_connected

    def connect(self) -> None:
        try:
            super().connect()
        except ConnectTimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, nothing was sent)
            failed = NewConnectionError(self, str(error))
            reason = ProxyError("the tunnel failed", error) if self.proxy else error
            raise (SSLError(failed) if isinstance(error, ssl.SSLError) else failed) from reason

    def getresponse(self) -> Any:
        """The response.

        :raises UnknownTransferEncoding: if ``http.client`` would take its end for another: a transfer coding that is not exactly
            ``chunked``, or an interim response (RFC 9110 section 15.2), after which the final one is still to come.
        """
        response = super().getresponse()
        self._used = time.monotonic()
        if response.status < 200 or response.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
            response.close()
            raise UnknownTransferEncoding
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    """The same over TLS."""
