"""A server of raw bytes, and three ways to use it: both clients, and downloads. What is promised of one is promised of all."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pendulum
import pytest
import trustme

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call, DeleteFolder
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.messages import Response, TransportFailure
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import Handler, RawServer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[other]"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOST = "files.test"
LINK_TOKEN = "link+token/=%"

Serve = Callable[..., RawServer]


def shut_down(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


def stay_open(connection: socket.socket) -> None:
    """Wait for the next request."""


def slowly(seconds: float) -> Callable[[], Iterator[bytes]]:
    """A response with a pause before it, and one in it."""

    def pieces() -> Iterator[bytes]:
        for piece in (OK[:30], OK[30:]):
            time.sleep(seconds)
            yield piece

    return pieces


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that responds to each request with the next of ``responses``, the last one again and again.

    A response is its bytes, or a function that returns them in pieces. ``then`` is called with the connection after each.
    """

    def start(*responses: Any, then: Callable[[socket.socket], object] = shut_down, handler: Handler | None = None) -> RawServer:
        waiting = list(responses)

        def respond(server: RawServer, connection: socket.socket) -> None:
            while server.read_request(connection):
                response = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                for piece in [response] if isinstance(response, bytes) else response():
                    connection.sendall(piece)
                then(connection)

        server = RawServer(handler or respond)
        servers.callback(server.close)
        return server

    with ExitStack() as servers:
        yield start


class Authority:
    """A certificate authority, and the file with its certificate."""

    def __init__(self, folder: Path) -> None:
        self._ca, self.bundle = trustme.CA(), str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.bundle)

    def wrap(self, connection: socket.socket, name: str) -> ssl.SSLSocket:
        """Begin TLS on a server's connection, with a certificate for that name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(name).configure_cert(context)
        return context.wrap_socket(connection, server_side=True)

    def respond(self, server: RawServer, connection: socket.socket, name: str = HOST) -> None:
        """Respond to each request over TLS."""
        with self.wrap(connection, name) as over_tls:
            while server.read_request(over_tls):
                over_tls.sendall(OK)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What all loggers print at level DEBUG."""
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    return caplog


class Target(bytearray):
    """What was downloaded."""

    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear


def link_to(url: str) -> Callable[[str], DownloadLink]:
    """Creates links to one URL."""
    return lambda file_id: DownloadLink(file_id, LINK_TOKEN, url, pendulum.now("UTC"), None)


Outcome = Response | errors.CloudStoreError
Send = Callable[..., Any]
Way = Callable[[Settings], AbstractContextManager[Send]]


def outcome_of(call: Call[Any], answer: Response | TransportFailure) -> Outcome:
    """The response, or the error in its place."""
    if isinstance(answer, Response):
        return answer
    with pytest.raises(errors.CloudStoreError) as failed:
        call.handle_outcome(answer)
    return failed.value


@contextmanager
def blocking(own: Settings) -> Iterator[Send]:
    def send(kind: type[Call[Any]] = DeleteFolder, subject: str = "d1") -> Outcome:
        call = kind(subject, own)
        return outcome_of(call, client.send(call.request(), 300))

    with BlockingClient(own, lambda: own) as client:
        yield send


@contextmanager
def asynchronous(own: Settings) -> Iterator[Send]:
    def send(kind: type[Call[Any]] = DeleteFolder, subject: str = "d1") -> Outcome:
        call = kind(subject, own)
        return outcome_of(call, runner.run(client.send(call.request(), 300)))

    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        client = AsyncClient(own, lambda: asyncio.sleep(0, own), runner.run(opened.enter_async_context(shared_session(own))))
        try:
            yield send
        finally:
            runner.run(opened.aclose())


@contextmanager
def download(own: Settings) -> Iterator[Send]:
    """Downloads a file from the service's address, in one attempt, whatever the call is."""
    own = replace(own, max_attempts=1, allow_http=True)

    def send(*_: Any) -> Outcome:
        now, target = time.time(), Target()
        try:
            client.run(Download("f1", own), target, on_retry=print)
        except errors.CloudStoreError as error:
            return error
        return Response(200, {}, bytes(target), now, now)

    with BlockingClient(own, lambda: own) as sessions:
        client = DownloadClient(sessions, link_to(f"{own.base_url}/{LINK_TOKEN}?t={LINK_TOKEN}"))
        yield send


WAYS = {"blocking": blocking, "asynchronous": asynchronous, "download": download}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """One of the clients, or downloads: a context manager whose value sends requests over one session."""
    return WAYS[request.param]


def send_once(way: Way, own: Settings, *what: Any) -> Any:
    with way(own) as send:
        return send(*what)


@pytest.fixture
def send(way: Way) -> Send:
    """Send one request in one of the three ways."""
    return partial(send_once, way)


@pytest.fixture(params=[blocking, asynchronous], ids=["blocking", "asynchronous"])
def send_call(request: pytest.FixtureRequest) -> Send:
    """As ``send``, but API calls only."""
    return partial(send_once, request.param)
