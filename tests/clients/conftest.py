"""A server of raw bytes, and both clients behind one face: what is promised of one is promised of the other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.operations import DELETE_FOLDER, Operation
from airflow_provider_cloudstore.protocol.settings import Settings

Handler = Callable[[socket.socket], None]
Accept = Callable[["RawServer", socket.socket], None]
Between = Callable[[], None]


class RawServer:
    """A server on loopback that does to each connection what it is told, each in a thread of its own."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed: the test is over
            while True:
                connection = self._listening.accept()[0]
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:  # the client has gone
            self._handler(connection)

    def read_request(self, connection: socket.socket) -> bytes:
        """One request, noted; empty where the client has closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(body) < sum(lengths):
            body += connection.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        return self.requests[-1]

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


Serve = Callable[..., RawServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that answers each request with the next of ``answers``, an endless one with its pieces; then it closes.

    ``then`` may do more with a connection that is to stay open after its answer. The last answer is given again and again.
    """
    servers: list[RawServer] = []

    def start(*answers: Any, then: Handler | None = None, handler: Accept | None = None) -> RawServer:
        waiting = list(answers)

        def answer(connection: socket.socket) -> None:
            while server.read_request(connection):
                now = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                for piece in [now] if isinstance(now, bytes) else now():
                    connection.sendall(piece)
                if then is None:
                    connection.shutdown(socket.SHUT_WR)
                else:
                    then(connection)

        server = RawServer((lambda connection: handler(server, connection)) if handler else answer)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def send_blocking(
    own: Settings, times: int = 1, operation: Operation = DELETE_FOLDER, between: Between | None = None, subject: str = "d1"
) -> Any:
    outcomes = []
    with BlockingClient(own, lambda: own) as client:
        for number in range(times):
            if number and between:
                between()
            outcomes.append(client._send(operation.request(subject, own), 300))
    return outcomes


def send_asynchronous(
    own: Settings, times: int = 1, operation: Operation = DELETE_FOLDER, between: Between | None = None, subject: str = "d1"
) -> Any:
    async def reload() -> Settings:
        return own

    async def run() -> Any:
        outcomes = []
        async with shared_session(own) as session:
            client = AsyncClient(own, reload, session)
            for number in range(times):
                if number and between:
                    between()
                outcomes.append(await client._send(operation.request(subject, own), 300))
        return outcomes

    return asyncio.run(run())


@pytest.fixture(params=["blocking", "asynchronous"])
def send(request: pytest.FixtureRequest) -> Any:
    """Send requests with one client, one after the other over the same session."""
    return send_blocking if request.param == "blocking" else send_asynchronous
