"""What is the asynchronous client's own: which callers share a session, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import POOL_LIMIT, AsyncClient, Session, shared_session
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import CreateDownloadLink, DeleteFolder
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import OK, Serve
from tests.raw_server import RawServer
from tests.support import settings, store_file


async def never() -> Settings:
    raise AssertionError("the connection was read again without a 401")


def connections(emulator: Emulator) -> int:
    """How many connections the emulator has open now."""
    return emulator.call(lambda service: len(service.connections()))


def test_users_of_one_address_share_one_session_that_closes_after_the_last() -> None:
    async def run() -> None:
        own, other = settings("https://a.example"), settings("https://b.example")
        async with shared_session(own) as first:
            async with shared_session(settings("https://a.example", token="another")) as second, shared_session(other) as third:
                assert first is second
                assert first is not third
            assert (third.http.closed, first.http.closed) == (True, False)
        assert [first.http.closed] == [True]
        async with shared_session(own) as fourth:
            assert fourth is not first

    asyncio.run(run())
    assert not asynchronous._shared


def test_many_calls_at_once_open_no_more_sockets_than_the_pool_holds_and_waiting_for_one_takes_none_of_their_time(
    emulator: Emulator,
) -> None:
    store_file(emulator)
    own = settings(emulator.url, emulator.access_token, timeout=2.0, max_attempts=1)
    emulator.fault("delay", seconds=0.3, times=0)
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, await asyncio.to_thread(connections, emulator))
            await asyncio.sleep(0.005)

    async def run() -> None:
        watching = asyncio.create_task(watch())
        async with shared_session(own) as session:
            client = AsyncClient(own, never, session)
            await asyncio.gather(*(client.perform(CreateDownloadLink("f1", own)) for _ in range(POOL_LIMIT * 8)))
        watching.cancel()

    asyncio.run(run())
    assert POOL_LIMIT // 2 < peak <= POOL_LIMIT
    assert emulator.state()["requests"] == {"link": POOL_LIMIT * 8}


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.05])
@pytest.mark.parametrize("users", [1, 3])
def test_a_session_survives_the_cancellation_of_any_user_at_any_moment(emulator: Emulator, delay: float, users: int) -> None:
    store_file(emulator)
    own = settings(emulator.url, emulator.access_token)
    emulator.fault("delay", seconds=0.01, times=0)
    sessions: set[int] = set()

    async def use() -> None:
        async with shared_session(own) as session:
            sessions.add(id(session))
            while True:
                await AsyncClient(own, never, session).perform(CreateDownloadLink("f1", own))

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
    received = threading.Event()

    def respond_slowly(server: RawServer, connection: socket.socket) -> None:
        while server.read_request(connection):
            connection.sendall(OK[:30])
            received.wait(5)
            connection.sendall(OK[30:])

    server = serve(handler=respond_slowly)
    own = settings(server.url)

    async def run() -> None:
        async with shared_session(own) as session:
            client = AsyncClient(own, never, session)
            task = asyncio.create_task(client.perform(DeleteFolder("d1", own)))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            received.set()
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
    usual = tls_context(settings()).cert_store_stats()["x509_ca"]
    assert usual > 50
    assert tls_context(settings(verify=str(bundle))).cert_store_stats()["x509_ca"] == 1
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(bundle))
        assert tls_context(settings()).cert_store_stats()["x509_ca"] == 1
        monkeypatch.delenv(name)
    assert tls_context(settings(verify=str(tmp_path))).verify_mode.name == "CERT_REQUIRED"
    assert tls_context(settings(verify=False)).verify_mode.name == "CERT_NONE"
