"""Sends the protocol's requests with ``requests``, for workers: operations, and the single requests of downloads."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from airflow_provider_cloudstore.clients.reasons import causes_of, transport_failure
from airflow_provider_cloudstore.clients.sessions import new_session
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET, Attempts, pause_before_retry
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

_FAILURES = (OSError, urllib3.exceptions.HTTPError)  # all that requests and urllib3 raise; anything else is a mistake in a mock
CHUNK = 256 * 1024
"""The most bytes of a body that are read at once."""
_NEVER_SENT = (urllib3.exceptions.ConnectTimeoutError, requests.ConnectTimeout)


class BlockingClient(AbstractContextManager["BlockingClient"]):
    """Performs operations over one session, which threads share.

    :param reload: reads the settings again after the service has refused the token, which it gets; or before there is one.
    :ivar settings: the connection as last read.
    """

    def __init__(self, settings: Settings, reload: Callable[[Secret], Settings]) -> None:
        self.settings = settings
        self._reload = reload
        self._session: requests.Session | None = None
        self._process = 0

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next call opens a new one."""
        if self._session:
            self._session.close()
        self._session = None

    @property
    def session(self) -> requests.Session:
        """The session. A forked process has its own: over its parent's connections, one would take the other's responses."""
        if self._session is None or self._process != os.getpid():
            self._session, self._process = new_session(self.settings), os.getpid()
        return self._session

    def perform(
        self,
        operation: Operation[T],
        *,
        budget: float = DEFAULT_BUDGET,
        max_attempts: int | None = None,
    ) -> T:
        """Make attempts until the operation succeeds or fails permanently.

        :param budget: seconds for all attempts and the pauses between them.
        :param max_attempts: how many requests to send at most, if not as many as the connection allows.
        :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
        """
        ends_at = time.monotonic() + budget
        if self.settings.lacks_token:
            self.settings = self._reload(self.settings.access_token)
        attempts = Attempts(max_attempts or self.settings.max_attempts, renewals=self.settings.renewals)
        while True:
            attempts, used = attempts.next(), self.settings
            outcome = operation.interpret(self.send(operation.request(used), ends_at - time.monotonic()), used, attempts)
            if not isinstance(outcome, CloudStoreError):
                return outcome
            pause = pause_before_retry(outcome, attempts, ends_at - time.monotonic())
            if pause is None:
                raise outcome
            time.sleep(pause)
            if attempts.needs_token(outcome) and not self.has_new_token(used):
                raise outcome
            attempts = attempts.after(outcome, used.access_token)

    def has_new_token(self, refused: Settings) -> bool:
        """Whether the connection holds another token than the refused one; it is read again, unless another call has done so."""
        if self.settings.access_token == refused.access_token:
            self.settings = self._reload(refused.access_token)
        return self.settings.access_token != refused.access_token

    def send(self, request: Request, time_left: float) -> Response | TransportFailure:
        """Send one request and read its response, up to the first piece that makes the body too large.

        :param time_left: maximum seconds for each step, if the connection's timeout is not shorter; also for the body as a whole.
        """
        limit = max(0.001, min(self.settings.timeout, time_left))
        with Exchange(self.session, limit) as exchange:
            head = exchange.open(request)
            if isinstance(head, TransportFailure):
                return head
            body, ends_at = bytearray(), time.monotonic() + limit
            while len(body) <= messages.MAX_BODY_BYTES and (piece := exchange.read(CHUNK)):
                if isinstance(piece, TransportFailure):
                    return piece
                if time.monotonic() > ends_at:
                    return transport_failure(TimeoutError(), sent=True, limit=limit, through_proxy=False)
                body += piece
        return replace(head, body=bytes(body), received=time.time())


class Exchange(AbstractContextManager["Exchange"]):
    """One request and its response; use it as a context manager. Library exceptions end here.

    :param limit: seconds to connect, to write and for each read.
    """

    def __init__(self, session: requests.Session, limit: float) -> None:
        self._session, self._limit = session, limit
        self._response: requests.Response | None = None
        self._body: Any = None

    def __exit__(self, *error: object) -> None:
        """Close the connection, unless the response was read to its end."""
        if self._response is not None:
            self._response.close()

    def open(self, request: Request) -> Response | TransportFailure:
        """Send a request and read the head of its response.

        :raises ConfigurationError: if the certificates or the proxy cannot be used.
        """
        prepared = requests.PreparedRequest()  # as it was encoded: requests would normalize the URL
        prepared.method, prepared.url = request.method, request.url
        # http.client encodes headers in Latin-1, but a token's characters are sent in UTF-8, as aiohttp does.
        prepared.headers = CaseInsensitiveDict(
            (name, value.encode().decode("latin-1")) for name, value in request.headers.items()
        )
        if request.body is not None:
            prepared.body = request.body.decode("ascii")  # text, as requests encodes a form: mocks compare it
            prepared.headers["Content-Length"] = str(len(request.body))
        sent = time.time()
        timeout = min(self._limit, messages.CONNECT_TIMEOUT), self._limit
        try:
            response = self._session.send(prepared, stream=True, timeout=timeout, allow_redirects=False)
        except _FAILURES as error:
            return self._failure(error)
        self._response = response
        # The response of a user's own adapter may have its content and nothing to read from.
        self._body = io.BytesIO(response.content) if response.raw is None else response.raw
        return Response(response.status_code, messages.headers_of(response.headers.items()), b"", sent, time.time())

    def read(self, maximum: int) -> bytes | TransportFailure:
        """The next bytes of the body as they arrive, at most so many; empty at its end."""
        try:
            if isinstance(self._body, urllib3.BaseHTTPResponse):
                # read would wait for the rest, and lose it all if the connection broke.
                return self._body.read1(maximum, decode_content=False)
            return bytes(self._body.read(maximum))
        except _FAILURES as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> TransportFailure:
        causes = list(causes_of(error))
        sent = not any(isinstance(cause, _NEVER_SENT) for cause in causes)
        through_proxy = any(isinstance(cause, urllib3.exceptions.ProxyError) for cause in causes)
        return transport_failure(error, sent=sent, limit=self._limit, through_proxy=through_proxy)
