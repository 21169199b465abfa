"""What is the asynchronous client's own: how many connections there are, and when they are not kept."""

from __future__ import annotations

import asyncio

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.protocol.operations import DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import slowly, stay_open
from tests.support import settings
from tests.wire.clients.conftest import Serve, respond_once


async def never() -> Settings:
    raise AssertionError("the connection was read again without a 401")


def test_calls_share_the_sockets_of_the_pool_and_waiting_for_one_takes_none_of_their_time(serve: Serve) -> None:
    server = serve(slowly(0.05), then=stay_open)
    own = settings(server.url, timeout=1.0, max_attempts=1)

    async def run() -> None:
        async with AsyncClient(own, never, 2) as client:
            await asyncio.gather(*(client.perform(DeleteFolder(own, "d1")) for _ in range(24)))

    asyncio.run(run())
    assert (server.connections, len(server.requests)) == (2, 24)


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
        async with AsyncClient(own, never, 8) as client:
            return await asyncio.gather(*(upload(client, number) for number in range(50)))

    queued = asyncio.run(run()).count(True)
    assert 50 - 8 <= queued < 50
    # Only those that were lost shared a connection.
    assert (server.connections, len(server.requests)) == (queued, 50)
