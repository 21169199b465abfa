"""What is the asynchronous client's own: who shares a session, what a cancelled caller leaves, when connections are kept."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.clients.asynchronous import POOL_LIMIT, AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.calls import DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import OK, Authority, RawServer, close, reset, slowly, stay_open
from tests.support import settings
from tests.wire.clients.conftest import Serve

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
        assert first.http.closed

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


def uploads(own: Settings, count: int, at_once: int) -> list[str]:
    """Send so many uploads over one session, and return how each ended."""

    async def upload(client: AsyncClient, number: int) -> str:
        try:
            await client.perform(UploadFromUrl(f"https://source.example/{number}", own))
        except exceptions.CloudStoreError as error:
            return error.reason
        return "queued"

    async def run() -> list[str]:
        async with shared_session(own, at_once) as session:
            client = AsyncClient(own, never, session)
            return list(await asyncio.gather(*(upload(client, number) for number in range(count))))

    return asyncio.run(run())


@pytest.mark.parametrize("end", [reset, close])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_once_an_upload_is_lost_on_a_kept_connection_each_has_one_of_its_own(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture, scheme: str, end: Callable[[socket.socket], object]
) -> None:
    def end_at_second_request(server: RawServer, connection: socket.socket) -> None:
        connection = authority.wrap(connection) if scheme == "https" else connection
        if server.read_request(connection):
            connection.sendall(OK)
        if server.read_request(connection):
            end(connection)
        connection.close()

    server = serve(handler=end_at_second_request)
    found = uploads(settings(f"{scheme}://localhost:{server.port}", verify=authority.bundle), 200, 8)
    assert 1 <= 200 - found.count("queued") <= 8, found
    # Only those that were lost shared a connection.
    assert (server.connections, len(server.requests)) == (found.count("queued"), 200)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [WARNING]


def test_a_connection_is_reused_for_a_second(serve: Serve) -> None:
    server = serve(OK, then=stay_open)
    own = settings(server.url)

    async def run() -> None:
        async with shared_session(own) as session:
            for pause in (0, 1.2, 0):
                await AsyncClient(own, never, session).perform(DeleteFolder("f1", own))
                await asyncio.sleep(pause)

    asyncio.run(run())
    assert (len(server.requests), server.connections) == (3, 2)
