"""Sends the protocol's requests with ``requests``, for workers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakSet

import requests

from airflow_provider_cloudstore.clients.exchange import Exchange
from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.clients.sessions import new_session
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, Call, pause_before_retry
from airflow_provider_cloudstore.protocol.messages import Request, Response, TransportFailure
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)


class BlockingClient(AbstractContextManager["BlockingClient"]):
    """Performs calls, with a session of its own for each thread.

    :param settings: the address, the token and the timeouts.
    :param reload: reads the settings again, once per call, after the service rejects the token.
    """

    def __init__(self, settings: Settings, reload: Callable[[], Settings]) -> None:
        self.settings = settings
        self._reload = reload
        self._own = threading.local()  # ends with its thread, and its session with it
        self._sessions: WeakSet[requests.Session] = WeakSet()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens its own connections."""
        return type(self), (self.settings, self._reload)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next call opens a new one."""
        self._own = threading.local()
        for session in list(self._sessions):
            session.close()

    @property
    def session(self) -> requests.Session:
        """The session of this thread: another one, or a forked process, would take the response to its request."""
        own: Any = self._own
        if getattr(own, "pid", None) != os.getpid():
            own.pid, own.session = os.getpid(), new_session(self.settings)
            self._sessions.add(own.session)
        session: requests.Session = own.session
        return session

    def perform(self, call: Call[T], *, budget: float = DEFAULT_BUDGET, on_retry: Callable[[str], None] = log.warning) -> T:
        """Make attempts until the call succeeds or fails permanently.

        :param budget: seconds for all attempts and the pauses between them.
        :param on_retry: called with a log line before each pause.
        :raises CloudStoreError: if the call failed permanently, or ran out of attempts or time.
        """
        ends_at = time.monotonic() + budget
        while True:
            try:
                return self.attempt(call, ends_at - time.monotonic())
            except CloudStoreError as error:
                pause = pause_before_retry(call, error, ends_at - time.monotonic(), on_retry)
                if pause is None:
                    raise
            time.sleep(pause)

    def attempt(self, call: Call[T], time_left: float) -> T:
        """Send one request of a call.

        :param time_left: maximum seconds, if the connection's timeout is not shorter.
        :raises CloudStoreError: if the attempt failed.
        """
        if call.token_rejected:
            call.replace_credentials(self._reload())
        return call.handle_outcome(self.send(call.request(), time_left))

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
            while len(body) <= messages.MAX_BODY_BYTES and (piece := exchange.read()):
                if isinstance(piece, TransportFailure):
                    return piece
                if time.monotonic() > ends_at:
                    return transport_failure(TimeoutError(), sent=True, limit=limit, through_proxy=False)
                body += piece
        return replace(head, body=bytes(body), received=time.time())
