"""What is the asynchronous client's own: how many connections there are, and when they are not kept."""

from __future__ import annotations

import asyncio

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.protocol.operations import DeleteFolder
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import slowly, stay_open
from tests.support import settings
from tests.wire.clients.conftest import Serve


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
