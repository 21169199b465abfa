"""What is the asynchronous client's own: which callers share a session, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import POOL_LIMIT, AsyncClient, Session, shared_session
from airflow_provider_cloudstore.clients.tls import tls_context
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import Serve, slowly, stay_open
from tests.support import settings


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
