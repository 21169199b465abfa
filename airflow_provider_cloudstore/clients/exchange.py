"""Sends one request over a ``requests.Session`` and reads its response, for calls and downloads."""

from __future__ import annotations

import io
import time
from contextlib import AbstractContextManager
from typing import Any

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from airflow_provider_cloudstore.clients.reasons import causes_of, transport_failure
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure

_FAILURES = (OSError, urllib3.exceptions.HTTPError)  # all that requests and urllib3 raise; anything else is a mistake in a mock
_NEVER_SENT = (urllib3.exceptions.ConnectTimeoutError, requests.ConnectTimeout)


class Exchange(AbstractContextManager["Exchange"]):
    """One request and its response; use it as a context manager. Library exceptions end here.

    :param session: the session.
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

    def read(self, most: int = 64 * 1024) -> bytes | TransportFailure:
        """The next bytes of the body as they arrive, at most so many; empty at its end."""
        try:
            if isinstance(self._body, urllib3.BaseHTTPResponse):
                # read would wait for the rest, and lose it all if the connection broke.
                return self._body.read1(most, decode_content=False)
            return bytes(self._body.read(most))
        except _FAILURES as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> TransportFailure:
        causes = list(causes_of(error))
        sent = not any(isinstance(cause, _NEVER_SENT) for cause in causes)
        through_proxy = any(isinstance(cause, urllib3.exceptions.ProxyError) for cause in causes)
        return transport_failure(error, sent=sent, limit=self._limit, through_proxy=through_proxy)
