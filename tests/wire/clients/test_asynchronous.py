"""What is the asynchronous client's own: who shares a session, what a cancelled caller leaves, when connections are not kept."""

from __future__ import annotations

import asyncio

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.operations import DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import OK, slowly, stay_open
from tests.support import settings
from tests.wire.clients.conftest import Serve, respond_once


async def never(_: Secret) -> Settings:
    raise AssertionError("the connection was read again without a 401")


def test_users_of_one_address_share_one_session_that_closes_after_the_last() -> None:
    async def run() -> None:
        own, other = settings("https://a.example"), settings("https://b.example")
        async with shared_session(own) as first:
            async with shared_session(settings("https://a.example", token="another")) as second, shared_session(other) as third:
                assert first is second
                assert first is not third
            assert (third.http.closed, first.http.closed) == (True, False)
        assert first.http.closed

    asyncio.run(run())
    assert not asynchronous._shared


def test_calls_share_the_sockets_of_the_pool_and_waiting_for_one_takes_none_of_their_time(serve: Serve) -> None:
    server = serve(slowly(0.05), then=stay_open)
    own = settings(server.url, timeout=1.0, max_attempts=1)

    async def run() -> None:
        async with shared_session(own, 2) as session:
            client = AsyncClient(own, never, session)
            await asyncio.gather(*(client.perform(DeleteFolder(own, "d1")) for _ in range(24)))

    asyncio.run(run())
    assert (server.connections, len(server.requests)) == (2, 24)


def test_a_session_survives_the_cancellation_of_whoever_opened_it(serve: Serve) -> None:
    own = settings(serve(OK).url)

    async def use() -> None:
        async with shared_session(own) as session:
            await AsyncClient(own, never, session).perform(DeleteFolder(own, "d1"))

    async def run() -> None:
        first, second = asyncio.create_task(use()), asyncio.create_task(use())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    asyncio.run(run())
    assert not asynchronous._shared


def test_once_an_upload_is_lost_on_a_kept_connection_each_has_one_of_its_own(serve: Serve) -> None:
    server = serve(handler=respond_once)
    own = settings(server.url)

    async def upload(client: AsyncClient, number: int) -> bool:
        try:
            await client.perform(UploadFromUrl(own, f"https://source.example/{number}"))
        except exceptions.OutcomeUnknownError:
            return False
        return True

    async def run() -> list[bool]:
        async with shared_session(own, 8) as session:
            client = AsyncClient(own, never, session)
            return await asyncio.gather(*(upload(client, number) for number in range(50)))

    queued = asyncio.run(run()).count(True)
    assert 50 - 8 <= queued < 50
    # Only those that were lost shared a connection.
    assert (server.connections, len(server.requests)) == (queued, 50)
