"""Sends one request over a session and reads its response, for calls and downloads."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.framing import IncompleteResponse
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure


class InFlight:
    """What a request and its connection tell each other; requests and urllib3 have no place for it.

    :param max_bytes: how many bytes the response may have on the wire.
    :ivar deadline: when the next operation on the socket must have ended, by the monotonic clock.
    :ivar target: the request target that the connection sends. The libraries, which log it, get one without its query.
    :ivar connected: whether the request may have been sent; None if no connection of ours took part, as with a mock.
    :ivar refused: the status of a proxy that opened no tunnel.
    :ivar status: the status of the response, as the connection read it.
    """

    def __init__(self, max_bytes: float = math.inf) -> None:
        self.max_bytes = max_bytes
        self.deadline = math.inf
        self.target = ""
        self.connected: bool | None = None
        self.through_proxy = False
        self.refused = self.status = 0

    def time_left(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return None if math.isinf(left) else left


current: ContextVar[InFlight] = ContextVar("current")
"""The request that this thread is sending."""


class Exchange(AbstractContextManager["Exchange"]):
    """One request and its response; use it as a context manager. Library exceptions end here.

    :param session: the session.
    :param limit: seconds, for what ``deadline`` measures.
    :param deadline: returns the time, by the monotonic clock, at which sending, or the next read, must end.
    :param max_bytes: how many bytes the response may have on the wire.
    """

    def __init__(
        self, session: requests.Session, limit: float, deadline: Callable[[], float], max_bytes: float = math.inf
    ) -> None:
        self._session, self._limit, self._deadline = session, limit, deadline
        self._in_flight = InFlight(max_bytes)
        self._response: requests.Response | None = None
        self._body: Any = None
        self._missing = 0  # bytes of a body that no connection of ours checks, as with a mock

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
        token = current.set(self._in_flight)
        try:
            self._in_flight.deadline = self._deadline()
            timeout = min(self._limit / 3, messages.CONNECT_TIMEOUT), self._in_flight.time_left()
            response = self._session.send(prepared, stream=True, timeout=timeout, allow_redirects=False)
            headers = messages.headers_of(response.headers.items())
            length = headers.get("content-length", "")
            if self._in_flight.connected is None and length.isdecimal() and messages.has_body(response.status_code):
                self._missing = int(length)
        except Exception as error:
            is_mistake = self._in_flight.connected is None and not isinstance(error, (OSError, urllib3.exceptions.HTTPError))
            if is_mistake or isinstance(error, CloudStoreError):  # a mistake in a mock, or in a user's own adapter
                raise
            return self._failure(error)
        finally:
            current.reset(token)
        self._response = response
        # The response of a user's own adapter may have its content and nothing to read from.
        self._body = response.raw if response.raw is not None else io.BytesIO(response.content)
        return Response(response.status_code, headers, b"", sent, time.time())

    def read(self, most: int = 64 * 1024) -> bytes | TransportFailure:
        """The next bytes of the body as they arrive, at most so many; empty at its end."""
        try:
            self._in_flight.deadline = self._deadline()
            if isinstance(self._body, urllib3.BaseHTTPResponse):
                # read would wait for the rest, and lose it all if the connection broke.
                piece = self._body.read1(most, decode_content=False)
            else:
                self._in_flight.time_left()
                piece = bytes(self._body.read(most))
            self._missing -= len(piece)
            if not piece and self._missing > 0:
                raise IncompleteResponse
            return piece
        except Exception as error:  # noqa: BLE001  (as above)
            return self._failure(error)

    def _failure(self, error: Exception) -> TransportFailure:
        state = self._in_flight
        if state.refused and not state.connected:
            return connect_refused(state.refused)
        sent = not isinstance(error, requests.ConnectTimeout) if state.connected is None else state.connected
        return transport_failure(error, sent=sent, limit=self._limit, through_proxy=state.through_proxy)
