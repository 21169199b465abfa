"""A server of raw bytes, and three ways to use it: both clients, and downloads. What is promised of one is promised of all."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.streaming import stream
from airflow_provider_cloudstore.protocol import retries
from airflow_provider_cloudstore.protocol.download_requests import Download
from airflow_provider_cloudstore.protocol.operations import DeleteFolder, Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink
from tests.raw_server import OK, Authority, Handler, RawServer, shut_down

HOST = "files.test"
LINK_TOKEN = "link+token/="

Serve = Callable[..., RawServer]


def response(status: str, *headers: str, body: str = "") -> bytes:
    """A response, of a status and its reason, after which the server closes the connection, as :func:`shut_down` does."""
    head = [f"HTTP/1.1 {status}", *headers, "Connection: close", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", body]).encode()


def respond_once(server: RawServer, connection: socket.socket) -> None:
    """Respond to the first request on a connection, and close it after the second."""
    if server.read_request(connection):
        connection.sendall(OK)
    server.read_request(connection)


def proxy_of(server: RawServer) -> Secret:
    """The server as a proxy with credentials."""
    return Secret(f"http://us%40er:p%2Fw%20d@127.0.0.1:{server.port}")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that responds to each request with the next of ``responses``, bytes or their pieces, then the last one."""

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


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _one_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trust one that no test uses: to read all of certifi's takes longer than a test."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", Authority(tmp_path).bundle)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_INITIAL_BACKOFF", 0.01)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What all loggers print at level DEBUG."""
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    return caplog


Send = Callable[..., Any]
Way = Callable[..., AbstractContextManager[Send]]


def sender(own: Settings, perform: Callable[..., Any]) -> Send:
    def send(kind: type[Operation[Any]] = DeleteFolder, *arguments: str, **more: Any) -> Any:
        try:
            return str(getattr(perform(kind(own, *(arguments or ("d1",)), **more)), "response", ""))
        except exceptions.CloudStoreError as error:
            return error

    return send


@contextmanager
def blocking(own: Settings, reload: Callable[[], Settings] | None = None) -> Iterator[Send]:
    with BlockingClient(own, lambda: reload() if reload else own) as client:
        yield sender(own, client.perform)


@contextmanager
def asynchronous(own: Settings, reload: Callable[[], Settings] | None = None) -> Iterator[Send]:
    async def reload_it() -> Settings:
        return reload() if reload else own

    with asyncio.Runner() as runner:
        client = runner.run(AsyncClient(own, reload_it).__aenter__())
        try:
            yield sender(own, lambda *operation, **more: runner.run(client.perform(*operation, **more)))
        finally:
            runner.run(client.close())


@contextmanager
def download(own: Settings, url: str = "") -> Iterator[Send]:
    """Downloads a file from the service's address, or a URL, whatever the call is."""

    def send(*_: Any) -> Any:
        target = io.BytesIO()
        try:
            stream(client, Download("f1", own), target, "", create_link)
        except exceptions.CloudStoreError as error:
            return error
        return target.getvalue().decode("latin-1")

    own = replace(own, allow_http=True)
    numbers, url = itertools.count(1), url or f"{own.base_url}/{LINK_TOKEN}?t={LINK_TOKEN}"

    def create_link(file_id: str) -> DownloadLink:
        return DownloadLink(file_id, LINK_TOKEN, url.replace("NUMBER", str(next(numbers))), pendulum.now("UTC"), None)

    with BlockingClient(own) as client:
        yield send


WAYS: dict[str, Way] = {"blocking": blocking, "asynchronous": asynchronous, "download": download}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """One of the clients, or downloads: a context manager whose value sends a request, and returns a text or the error."""
    return WAYS[request.param]


def send_once(way: Way, own: Settings, *what: Any) -> Any:
    with way(replace(own, max_attempts=1)) as send:
        return send(*what)


@pytest.fixture
def send(way: Way) -> Send:
    """Send one request in one of the three ways."""
    return partial(send_once, way)


@pytest.fixture(params=["blocking", "asynchronous"])
def call_way(request: pytest.FixtureRequest) -> Way:
    """As ``way``, but API calls only."""
    return WAYS[request.param]
