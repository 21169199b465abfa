"""Sends the protocol's requests with ``requests``, for workers: operations, and the single requests of downloads."""

from __future__ import annotations

import io
import logging
import re
import ssl
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from airflow_provider_cloudstore.clients.reasons import causes_of, failure_in_doubt, failure_unsent, tunnel_refused
from airflow_provider_cloudstore.clients.route import MAX_IDLE, ca_bundle, proxy_for
from airflow_provider_cloudstore.protocol import http
from airflow_provider_cloudstore.protocol.call import attempts_of
from airflow_provider_cloudstore.protocol.http import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

_FAILURES = (OSError, urllib3.exceptions.HTTPError)  # requests and urllib3 raise only these; others are mistakes in a mock
_CHUNK = 256 * 1024  # maximum number of bytes of a body that are read at once
_NEVER_SENT = (
    urllib3.exceptions.ConnectTimeoutError,  # covers a refused connection and an unknown host name, too
    requests.ConnectTimeout,
)
_TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})", re.ASCII)  # the status is only in http.client's text
_is_sending = ContextVar("_is_sending", default=False)


class BlockingClient(AbstractContextManager["BlockingClient"]):
    """Performs operations over one session, which threads share.

    :param renew: returns the settings with another token, if there is one; None if the settings never change.
    :ivar settings: the connection's settings as last read. Proxy and certificates remain those of the first reading.
    :raises ConfigurationError: if the certificates cannot be read.
    """

    def __init__(self, settings: Settings, renew: Callable[[], Settings] | None = None) -> None:
        self.settings = settings
        self.session: requests.Session = _Session(settings)
        self._renew = renew
        self._renewing, self._closing = threading.Lock(), threading.Lock()
        self._last_call = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next call opens a new one."""
        self.session.close()

    def perform(self, operation: Operation[T], *, max_attempts: int = 0) -> T:
        """Make the attempts of :func:`~airflow_provider_cloudstore.protocol.call.attempts_of`, and return the operation's result.

        :param max_attempts: how many attempts may be made; 0 for what the connection says.
        """
        attempts, answer = attempts_of(operation, self, max_attempts), None
        try:
            while True:
                answer = attempts.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def renew(self, old: Secret) -> bool:
        """Renew the settings, unless another thread has replaced the old token; return whether there is another token."""
        with self._renewing:
            if self._renew and self.settings.access_token == old:
                self.settings = self._renew()
        return self.settings.access_token != old

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def send(self, request: Request) -> Response | TransportFailure:
        """Send one request and read its response; stop reading as soon as the body is too large.

        The connection's timeout limits each step, and the body as a whole.
        """
        limit = self.settings.timeout
        self._close_idle_connections()
        with Exchange(self) as exchange:
            head = exchange.open(request)
            if isinstance(head, TransportFailure):
                return head
            body, ends_at = bytearray(), time.monotonic() + limit
            while len(body) <= http.MAX_BODY_BYTES and (piece := exchange.read(decoded=True)):
                if isinstance(piece, TransportFailure):
                    return piece
                if time.monotonic() > ends_at:
                    return failure_in_doubt(TimeoutError(), limit)
                body += piece
        return replace(head, body=bytes(body), received_at=time.time())

    def _close_idle_connections(self) -> None:
        """Close the kept connections if the last call began more than a second ago.

        The server may have dropped them silently, and the outcome of an upload lost on a dropped connection would be unknown.
        """
        with self._closing:  # else another thread might close them later, in the middle of a request
            if time.monotonic() > self._last_call + MAX_IDLE:
                self.session.close()  # the session stays usable, and so do connections in use
            self._last_call = time.monotonic()


class Exchange(AbstractContextManager["Exchange"]):
    """One request and its response; use it as a context manager. It turns the libraries' exceptions into ``TransportFailure``.

    The timeout of the client's connection limits each step: to connect, to write, and each read.
    """

    def __init__(self, client: BlockingClient) -> None:
        self._session, self._limit = client.session, client.settings.timeout
        self._response: requests.Response | None = None
        self._body: Any = None

    def __exit__(self, *error: object) -> None:
        """Close the connection, unless the response was read to its end."""
        if self._response is not None:
            self._response.close()

    def open(self, request: Request) -> Response | TransportFailure:
        """Send a request and read the head of its response.

        :raises ConfigurationError: if the proxy of the environment cannot be used.
        """
        sent = time.time()
        timeout = min(self._limit, http.CONNECT_TIMEOUT), self._limit
        try:
            response = self._session.send(_prepare(request), stream=True, timeout=timeout, allow_redirects=False)
        except _FAILURES as error:
            return _failure_to_open(error, self._limit)
        self._response = response
        # A response from a user's own adapter may have only its content, and no raw stream.
        self._body = io.BytesIO(response.content) if response.raw is None else response.raw
        headers = {name.lower(): value.strip() for name, value in response.headers.items()}
        head = Response(response.status_code, headers, b"", sent, time.time())
        return TransportFailure(sent=True, reason="the response is not valid HTTP") if head.is_interim else head

    def read(self, *, decoded: bool) -> bytes | TransportFailure:
        """Read the next bytes of the body as they arrive; at its end, return empty bytes.

        :param decoded: whether to undo the content coding (gzip).
        """
        try:
            if isinstance(self._body, urllib3.BaseHTTPResponse):
                # `read` would wait for that many bytes, and lose those it has if the connection broke.
                return self._body.read1(_CHUNK, decode_content=decoded)
            return bytes(self._body.read(_CHUNK))
        except _FAILURES as error:
            return failure_in_doubt(error, self._limit)


def _prepare(request: Request) -> requests.PreparedRequest:
    """Prepare a request with its URL exactly as encoded, because requests' own preparation would normalize it."""
    prepared = requests.PreparedRequest()
    prepared.method, prepared.url = request.method, request.url
    prepared.headers = CaseInsensitiveDict(request.headers)
    if request.body is not None:
        prepared.body = request.body.decode("ascii")  # text, like a form encoded by requests, because mocks compare it
        prepared.headers["Content-Length"] = str(len(request.body))
    return prepared


def _is_of_handshake(error: BaseException) -> bool:
    """Whether an exception was raised during the TLS handshake, which comes before the request."""
    handshake = ssl.SSLSocket.do_handshake.__code__
    return any(frame.f_code is handshake for frame, _ in traceback.walk_tb(error.__traceback__))


def _failure_to_open(error: Exception, limit: float) -> TransportFailure:
    """Describe an exception raised before the response. Unless it shows otherwise, the request may have been sent."""
    for cause in causes_of(error):
        if type(cause) is OSError and (refused := _TUNNEL_REFUSED.match(str(cause))):
            return tunnel_refused(int(refused[1]))
        if isinstance(cause, _NEVER_SENT) or _is_of_handshake(cause):
            return failure_unsent(error)
    return failure_in_doubt(error, limit)


def _drop_our_requests(_: logging.LogRecord) -> bool:
    """Drop urllib3's log records of our requests, because they show paths and queries, which hold tokens."""
    return not _is_sending.get()


class _Session(requests.Session):
    """A session that follows no redirect, keeps no cookie, and takes only proxy and CA bundle from the environment.

    The connection's certificates and proxy apply to every request that does not name its own.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.trust_env = False
        self.verify = ca_bundle(settings)
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for name in ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry"):
            logging.getLogger(name).addFilter(_drop_our_requests)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request through the proxy for its URL, unless the caller names another proxy."""
        if not kwargs.get("proxies") and (proxy := proxy_for(self._settings, str(request.url))):
            kwargs["proxies"] = {"all": proxy.reveal()}
        token = _is_sending.set(True)
        try:
            return super().send(request, **kwargs)
        finally:
            _is_sending.reset(token)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None: otherwise requests would read the whole body of a redirect, even without following it."""
