"""Sends the protocol's requests with ``requests``, for workers.

``requests`` limits the time to connect and the time between two bytes, but not the time for the whole answer, and its exceptions
do not tell whether the request had left. Both are known where the connection is, so the connection is watched.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import pendulum
import requests
import urllib3
from requests.adapters import HTTPAdapter
from tenacity import Retrying
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from airflow_provider_cloudstore.clients.reasons import reason_of
from airflow_provider_cloudstore.clients.trust import CONNECT_TIMEOUT
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, retry_policy
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.values import MAX_BODY_BYTES, Break, Failure, Request, Response, headers_of

T = TypeVar("T")

log = logging.getLogger(__name__)

_CHUNK = 16 * 1024


class BlockingClient:
    """One session with the service. Not for use from two threads at once.

    :param settings: the address, the token, the time limits.
    :param reload: reads the settings again; asked once in a call whose token was refused.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Settings]) -> None:
        self._settings = settings
        self._reload = reload
        self._session = requests.Session()
        self._session.auth = _leave_alone  # else a .netrc entry for the host would replace the token
        self._session.headers.clear()
        self._watch = _Watch()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _WatchedAdapter(self._watch))
        _hide_queries_in_debug_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._session.close()

    def perform(self, call: Call[T], *, budget: float = DEFAULT_BUDGET, on_retry: Callable[[str], None] = log.warning) -> T:
        """Send a call's requests until one of them settles it.

        :param call: what to do.
        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: is given one line before each pause.
        :raises CloudStoreError: if it failed for good, its attempts or its time are used up.
        """
        ends_at = time.monotonic() + budget
        for attempt in Retrying(**retry_policy(call, budget, on_retry)):
            with attempt:
                result = self.attempt(call, ends_at - time.monotonic())
        return result

    def attempt(self, call: Call[T], time_left: float = DEFAULT_BUDGET) -> T:
        """Send one request of a call.

        :param call: what to do.
        :param time_left: seconds that it may take, if the connection's timeout is not shorter.
        :raises CloudStoreError: if this attempt failed.
        """
        if call.token_refused:
            call.renew(self._reload())
        return call.finish(self._send(call.request(), time_left))

    def _send(self, request: Request, time_left: float) -> Response | Failure:
        """Send one request. A library's exception ends here: it is not even the context of what is raised later."""
        limit = max(0.001, min(self._settings.timeout, time_left))
        sent_at = pendulum.now("UTC")
        proxy = self._settings.proxy
        with self._watch.over(limit):
            try:
                with self._session.request(
                    request.method,
                    request.url,
                    # http.client encodes headers as latin-1; the bytes on the wire are UTF-8, as aiohttp sends them.
                    headers={name: value.encode().decode("latin-1") for name, value in request.headers.items()},
                    data=request.body,
                    timeout=(min(limit, CONNECT_TIMEOUT), limit),
                    # Given here and not to the session, over which REQUESTS_CA_BUNDLE and HTTPS_PROXY would win.
                    verify=self._settings.verify,
                    proxies=dict.fromkeys(("http", "https"), proxy.reveal()) if proxy else None,
                    allow_redirects=False,
                    stream=True,
                ) as answer:
                    body = b""
                    for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                        body += chunk
                        if len(body) > MAX_BODY_BYTES:
                            break
                if not self._watch.expired:
                    return Response(
                        answer.status_code,
                        headers_of(answer.raw.headers.iteritems()),
                        body[:MAX_BODY_BYTES],
                        sent_at,
                        pendulum.now("UTC"),
                        too_large=len(body) > MAX_BODY_BYTES,
                    )
                failed = "cut off"
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                failed = reason_of(error)
        if not self._watch.connected:
            return Failure(Break.NEVER_SENT, f"no connection to the service: {failed}")
        return Failure(Break.OUTCOME_UNKNOWN, f"no whole answer within {limit:g} s" if self._watch.expired else failed)


class _Watch:
    """Knows whether the request now under way had a connection, and cuts that connection when its time is up."""

    def __init__(self) -> None:
        self.connected = False
        self.expired = False
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None

    def over(self, limit: float) -> Self:
        self.connected = self.expired = False
        self._connection = self._socket = None
        self._timer = threading.Timer(limit, self._expire)
        self._timer.daemon = True
        return self

    def __enter__(self) -> None:
        if self._timer:
            self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._timer:
            self._timer.cancel()

    def connecting(self, connection: HTTPConnection) -> None:
        self._connection = connection

    def sending(self, connection: HTTPConnection) -> None:
        # Kept apart from the connection, which lets go of its socket once an answer begins that ends with the connection.
        self._socket, self.connected = connection.sock, True

    def _expire(self) -> None:
        self.expired = True
        sock = self._socket or (self._connection.sock if self._connection else None)
        if sock:
            with suppress(OSError):  # it is closed already, which is what is wanted
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _WatchedAdapter(HTTPAdapter):
    """An adapter whose connections report to a watch (urllib3: ``PoolManager.pool_classes_by_scheme``, ``ConnectionCls``)."""

    def __init__(self, watch: _Watch) -> None:
        class Http(HTTPConnection):
            def connect(self) -> None:
                watch.connecting(self)
                super().connect()
                watch.sending(self)

            def request(self, *args: Any, **kwargs: Any) -> None:
                if self.sock is not None:
                    watch.sending(self)
                super().request(*args, **kwargs)

        class Https(Http, HTTPSConnection):
            pass

        class HttpPool(HTTPConnectionPool):
            ConnectionCls = Http

        class HttpsPool(HTTPSConnectionPool):
            ConnectionCls = Https

        self._pools = {"http": HttpPool, "https": HttpsPool}
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _leave_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _HideQueries(logging.Filter):
    """Takes the query, where the token of a download link is, out of what urllib3 logs at level DEBUG.

    Masking alone does not do: where a registered secret begins another one, the mask leaves the tail of the longer one.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg.partition("?")[0] + "?***" if isinstance(arg, str) and "?" in arg else arg for arg in record.args
            )
        return True


_HIDE_QUERIES = _HideQueries()


def _hide_queries_in_debug_log() -> None:
    for name in ("urllib3.connectionpool", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(_HIDE_QUERIES)  # adding it twice adds it once
