"""What is the asynchronous client's own: who shares a session, what a cancelled caller leaves, when connections are kept."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import POOL_LIMIT, AsyncClient, Session, shared_session
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import Handler, RawServer
from tests.support import settings
from tests.wire.clients.conftest import OK, Authority, Serve, slowly, stay_open

CONCURRENCY = 8
WARNING = "An upload was lost on a kept-alive connection: from now on each upload opens a connection of its own."


async def never() -> Settings:
    raise AssertionError("the connection was read again without a 401")


def test_users_of_one_address_share_one_session_that_closes_after_the_last() -> None:
    async def run() -> None:
        own, other = settings("https://a.example"), settings("https://b.example")
        async with shared_session(own) as first:
            async with shared_session(settings("https://a.example", token="another")) as second, shared_session(other) as third:
                assert first is second
                assert first is not third
            assert (third.http.closed, first.http.closed) == (True, False)
            async with shared_session(own, fresh_after_loss=True) as careful:
                assert careful is not first
        assert [first.http.closed] == [True]
        async with shared_session(own) as fourth:
            assert fourth is not first

    asyncio.run(run())
    assert not asynchronous._shared


def test_calls_share_the_sockets_of_the_pool_and_waiting_for_one_takes_none_of_their_time(serve: Serve) -> None:
    server = serve(slowly(0.15), then=stay_open)
    own = settings(server.url, timeout=2.0, max_attempts=1)

    async def run() -> None:
        async with shared_session(own) as session:
            client = AsyncClient(own, never, session)
            await asyncio.gather(*(client.perform(DeleteFolder("d1", own)) for _ in range(POOL_LIMIT * 8)))

    asyncio.run(run())
    assert (server.connections, len(server.requests)) == (POOL_LIMIT, POOL_LIMIT * 8)


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.05])
@pytest.mark.parametrize("users", [1, 3])
def test_a_session_survives_the_cancellation_of_any_user_at_any_moment(serve: Serve, delay: float, users: int) -> None:
    own = settings(serve(slowly(0.005), then=stay_open).url)
    sessions: set[int] = set()

    async def use() -> None:
        async with shared_session(own) as session:
            sessions.add(id(session))
            while True:
                await AsyncClient(own, never, session).perform(DeleteFolder("d1", own))

    async def run() -> None:
        tasks = [asyncio.create_task(use()) for _ in range(users)]
        for task in tasks:
            await asyncio.sleep(delay)
            task.cancel()
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await asyncio.gather(*asynchronous._closing)

    asyncio.run(run())
    assert not asynchronous._shared
    assert len(sessions) <= users


def test_a_request_that_is_cancelled_in_its_response_leaves_a_session_that_works(serve: Serve) -> None:
    server = serve(slowly(0.15), then=stay_open)
    own = settings(server.url)

    async def run() -> None:
        async with shared_session(own) as session:
            client = AsyncClient(own, never, session)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.perform(DeleteFolder("d1", own)), 0.2)
            await client.perform(DeleteFolder("d2", own))

    asyncio.run(run())
    assert (len(server.requests), server.connections) == (2, 2)


def test_a_session_that_cannot_be_opened_fails_every_user_and_leaves_nothing(tmp_path: Path) -> None:
    bundle = tmp_path / "empty.pem"
    bundle.touch()

    async def use() -> Session:
        async with shared_session(settings(verify=str(bundle))) as session:
            return session

    async def run() -> list[Any]:
        return list(await asyncio.gather(use(), use(), return_exceptions=True))

    assert all(isinstance(result, errors.ConfigurationError) for result in asyncio.run(run()))
    assert not asynchronous._shared


def test_the_same_certificates_are_trusted_as_with_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(bundle)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    assert tls_context(settings()).cert_store_stats()["x509_ca"] > 50
    assert tls_context(settings(verify=str(bundle))).cert_store_stats()["x509_ca"] == 1
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(bundle))
        assert tls_context(settings()).cert_store_stats()["x509_ca"] == 1
        monkeypatch.delenv(name)
    assert tls_context(settings(verify=str(tmp_path))).verify_mode.name == "CERT_REQUIRED"
    assert tls_context(settings(verify=False)).verify_mode.name == "CERT_NONE"


# --- when connections are kept


def close(connection: socket.socket) -> None:
    """Close a connection, within TLS without a word of it."""
    socket.socket(fileno=connection.detach()).close()


def reset(connection: socket.socket) -> None:
    with socket.socket(fileno=connection.detach()) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def at_second_request(end: Callable[[socket.socket], object], wrap: Callable[[socket.socket], socket.socket]) -> Handler:
    """Respond to the first request of a connection, and end the connection when it has read another."""

    def respond(server: RawServer, connection: socket.socket) -> None:
        connection = wrap(connection)
        if server.read_request(connection):
            connection.sendall(OK)
        if server.read_request(connection):
            end(connection)
        connection.close()

    return respond


def uploads(own: Settings, count: int, *, at_once: int = CONCURRENCY, **options: Any) -> list[str]:
    """Send so many uploads over one session, and return how each ended."""

    async def run() -> list[str]:
        async with shared_session(own, at_once, **options) as session:
            client = AsyncClient(own, never, session)
            return list(await asyncio.gather(*(upload(client, own, number) for number in range(count))))

    return asyncio.run(run())


async def upload(client: AsyncClient, own: Settings, number: int) -> str:
    try:
        await client.perform(UploadFromUrl(f"https://source.example/{number}", own))
    except errors.CloudStoreError as error:
        return error.reason
    return "queued"


@pytest.mark.parametrize("end", [reset, close])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_once_an_upload_is_lost_on_a_kept_connection_each_has_one_of_its_own(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture, scheme: str, end: Any
) -> None:
    server = serve(handler=at_second_request(end, lambda raw: authority.wrap(raw, "localhost") if scheme == "https" else raw))
    own = settings(f"{scheme}://localhost:{server.port}", verify=authority.bundle)
    found = uploads(own, 200, fresh_after_loss=True)
    assert 1 <= 200 - found.count("queued") <= CONCURRENCY, found
    # Only those that were lost shared a connection.
    assert (server.connections, len(server.requests)) == (found.count("queued"), 200)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [WARNING]


def test_a_session_keeps_its_connections_whatever_is_lost_unless_told_otherwise(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(handler=at_second_request(reset, lambda raw: raw))
    assert uploads(settings(server.url), 20, at_once=1) == ["queued", "connection reset"] * 10
    assert WARNING not in caplog.text


def test_an_upload_with_a_connection_of_its_own_leaves_no_socket_to_a_server_that_does_not_close(
    serve: Serve, authority: Authority
) -> None:
    def respond(server: RawServer, connection: socket.socket) -> None:
        within = authority.wrap(connection, "localhost")
        left_open.append(within)
        server.read_request(within)
        within.sendall(OK)
        if len(left_open) == 1:
            server.read_request(within)
            reset(within)

    async def run() -> int:
        async with shared_session(own, 1, fresh_after_loss=True) as session:
            client = AsyncClient(own, never, session)
            for number in range(20):
                await upload(client, own, number)
            return sockets_to(server.port)

    left_open: list[socket.socket] = []
    server = serve(handler=respond)
    own = settings(f"https://localhost:{server.port}", verify=authority.bundle)
    assert asyncio.run(run()) <= 2
    assert server.connections == 19
    for within in left_open:
        within.close()


def sockets_to(port: int) -> int:
    """How many sockets this process has open to a port on loopback."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[9] != "0" for row in rows)


def stay_silent(connection: socket.socket) -> None:
    """Wait until the client gives up."""
    connection.recv(1)


def send_nonsense(connection: socket.socket) -> None:
    connection.sendall(b"nonsense\r\n\r\n")


def close_at_once(connection: socket.socket) -> None:
    """Nothing: the handler ends."""


@pytest.mark.parametrize(("number", "end"), [(2, stay_silent), (2, send_nonsense), (1, close_at_once)])
def test_a_late_or_bad_response_and_a_loss_on_a_new_connection_are_no_reason_to_stop_keeping_them(
    serve: Serve, caplog: pytest.LogCaptureFixture, number: int, end: Any
) -> None:
    def respond(server: RawServer, connection: socket.socket) -> None:
        while server.read_request(connection):
            if len(server.requests) == number:
                end(connection)
                return
            connection.sendall(OK)

    server = serve(handler=respond)
    found = uploads(settings(server.url, timeout=0.5), 6, at_once=1, fresh_after_loss=True)
    assert (found[number - 1] != "queued", found.count("queued"), server.connections) == (True, 5, 2)
    assert WARNING not in caplog.text


def test_a_connection_that_closed_while_it_was_idle_has_lost_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def when_told(connection: socket.socket) -> None:
        may_close.wait()
        connection.close()
        closed.set()

    async def run() -> list[str]:
        async with shared_session(own, 1, fresh_after_loss=True) as session:
            client = AsyncClient(own, never, session)
            first = await upload(client, own, 1)
            server.close()
            may_close.set()
            closed.wait()  # the event loop waits, too: it learns of the close from the connection alone
            return [first, await upload(client, own, 2)]

    may_close, closed = threading.Event(), threading.Event()
    server = serve(OK, then=when_told)
    own = settings(server.url, max_attempts=1)
    first, second = asyncio.run(run())
    assert first == "queued"
    assert "connection refused" in second
    assert WARNING not in caplog.text
