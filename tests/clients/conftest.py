"""One face for both clients and for downloads: what is promised of one is promised of all."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pendulum
import pytest
import trustme

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import DELETE_FOLDER, Operation
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import Handler, RawServer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[other]"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOST = "files.test"
LINK_TOKEN = "link+token/=%"

Outcome = Response | TransportFailure
Way = Callable[[Settings], AbstractContextManager["Sender"]]
Send = Callable[..., list[Any]]

Serve = Callable[..., RawServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that answers each request with the next of ``answers``, an endless one with its pieces; then it closes.

    ``then`` may do more with a connection that is to stay open after its answer. The last answer is given again and again.
    """
    servers: list[RawServer] = []

    def start(*answers: Any, then: Callable[[socket.socket], object] | None = None, handler: Handler | None = None) -> RawServer:
        waiting = list(answers)

        def answer(server: RawServer, connection: socket.socket) -> None:
            while server.read_request(connection):
                now = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                for piece in [now] if isinstance(now, bytes) else now():
                    connection.sendall(piece)
                if then is None:
                    connection.shutdown(socket.SHUT_WR)
                else:
                    then(connection)

        servers.append(RawServer(handler or answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def stay_open(connection: socket.socket) -> None:
    """The server's side waits for the next request."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and the file with its certificate."""

    ca: trustme.CA
    bundle: str

    def server_context(self, name: str) -> ssl.SSLContext:
        """The TLS context of a server with a certificate for that name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(name).configure_cert(context)
        return context


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    ca, bundle = trustme.CA(), str(Path(tmp_path_factory.mktemp("authority"), "ca.pem"))
    ca.cert_pem.write_to_path(bundle)
    return Authority(ca, bundle)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What all loggers print at level DEBUG."""
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@contextmanager
def download_client(own: Settings, create_link: Callable[[str], DownloadLink], **more: Any) -> Iterator[DownloadClient]:
    """A client for downloads, closed in the end."""
    with BlockingClient(own, lambda: own) as client:
        yield DownloadClient(client, create_link, **more)


class Target(bytearray):
    """What was downloaded."""

    def write(self, data: bytes) -> None:
        self += data

    restart = bytearray.clear


class Minter:
    """Creates a link to each of ``urls`` in turn; the last one again and again."""

    def __init__(self, *urls: str) -> None:
        self.urls, self.made = list(urls), 0

    def __call__(self, file_id: str) -> DownloadLink:
        url = self.urls[min(self.made, len(self.urls) - 1)]
        self.made += 1
        return DownloadLink(file_id, LINK_TOKEN, url, pendulum.now("UTC"), None)


class Sender(NamedTuple):
    """Sends requests over one session: one, for what came of it, or as many as a call needs, for its error."""

    send: Callable[[Operation, str], Outcome]
    perform: Callable[[], object]


@contextmanager
def blocking(own: Settings) -> Iterator[Sender]:
    with BlockingClient(own, lambda: own) as client:
        yield Sender(
            lambda operation, subject: client.send(operation.request(subject, own), 300),
            lambda: client.perform(DeleteFolder("d1", own)),
        )


@contextmanager
def asynchronous(own: Settings) -> Iterator[Sender]:
    async def reload() -> Settings:
        return own

    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        client = AsyncClient(own, reload, runner.run(opened.enter_async_context(shared_session(own))))
        try:
            yield Sender(
                lambda operation, subject: runner.run(client.send(operation.request(subject, own), 300)),
                lambda: runner.run(client.perform(DeleteFolder("d1", own))),
            )
        finally:
            runner.run(opened.aclose())


@contextmanager
def download(own: Settings) -> Iterator[Sender]:
    """Downloads a file from the service's address, in one attempt; the operation and its subject are those of calls."""
    own = replace(own, max_attempts=1, allow_http=True)

    def perform() -> bytes:
        target = Target()
        client.run(Download("f1", own), target, on_retry=print)
        return bytes(target)

    def send(*_: Any) -> Outcome:
        now = time.time()
        try:
            return Response(200, {}, perform(), now, now)
        except errors.CloudStoreError as error:
            if error.status and error.status >= 300:
                return Response(error.status, {}, b"", now, now)
            never = FailureKind.PROXY_REFUSED if isinstance(error, errors.ConfigurationError) else FailureKind.NEVER_SENT
            return TransportFailure(FailureKind.OUTCOME_UNKNOWN if error.sent else never, error.reason)

    with download_client(own, Minter(f"{own.base_url}/{LINK_TOKEN}?t={LINK_TOKEN}")) as client:
        yield Sender(send, perform)


WAYS = {"blocking": blocking, "asynchronous": asynchronous, "download": download}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Opens one of the clients, or one for downloads."""
    return WAYS[request.param]


def send_in(
    way: Way,
    own: Settings,
    times: int = 1,
    operation: Operation = DELETE_FOLDER,
    between: Callable[[], object] = lambda: None,
    subject: str = "d1",
) -> list[Any]:
    outcomes = []
    with way(own) as sender:
        for number in range(times):
            if number:
                between()
            outcomes.append(sender.send(operation, subject))
    return outcomes


@pytest.fixture
def send(way: Way) -> Send:
    """Send requests in one of the three ways, one after the other over the same session."""
    return partial(send_in, way)


@pytest.fixture(params=[blocking, asynchronous], ids=["blocking", "asynchronous"])
def send_call(request: pytest.FixtureRequest) -> Send:
    """As ``send``, but API calls only."""
    return partial(send_in, request.param)


def bodies(outcomes: list[Outcome]) -> list[Any]:
    return [outcome.body if isinstance(outcome, Response) else outcome.reason for outcome in outcomes]
