"""Reads are counted: however many hooks of an event loop use a connection, they read it once."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from airflow.providers.common.compat.connection import get_async_connection

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.hooks import cloudstore, shared_connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook
from airflow_provider_cloudstore.hooks.shared_connection import RENEW_SECONDS, REREAD_SECONDS, RETRY_SECONDS, SharedConnection
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import settings, store_file

USERS = 200


class Clock:
    """The time as the module sees it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shared_connection, "time", clock)
    return clock


class Source:
    """Where the connection is: counts its reads, each of which takes until :meth:`respond`, or a moment."""

    def __init__(self) -> None:
        self.reads = 0
        self.token = "first"
        self.error: Exception | None = None
        self.delay: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0.01)

    async def read(self, warned: set[str]) -> Settings:
        self.reads += 1
        token, error = self.token, self.error  # as they are when the read begins
        await self.delay()
        if error:
            raise error
        return settings(token=token)

    async def open(self, conn_id: str = "c") -> Settings:
        async with shared_connection.shared_connection(conn_id, type(self)) as connection:
            return await connection.open(self.read)


@pytest.fixture
def source() -> Source:
    return Source()


async def opened(stack: AsyncExitStack, source: Source, conn_id: str = "c") -> SharedConnection:
    connection = await stack.enter_async_context(shared_connection.shared_connection(conn_id, Source))
    await connection.open(source.read)
    return connection


async def settle() -> None:
    """Let what runs in the background finish."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


def test_those_who_come_one_after_another_share_a_read_too(source: Source, clock: Clock) -> None:
    async def start() -> None:
        for _ in range(100):
            await source.open()
        assert source.reads == 1
        clock.now += RENEW_SECONDS
        source.token = "second"
        assert (await source.open()).access_token.reveal() == "second"  # nobody used it meanwhile: it must be fresh

    asyncio.run(start())
    assert source.reads == 2


@pytest.mark.parametrize("error", [ConfigurationError("no"), OSError("the supervisor is gone")], ids=repr)
def test_a_failure_is_shared_and_not_repeated_by_each_in_turn(source: Source, clock: Clock, error: Exception) -> None:
    async def start() -> None:
        source.error = error
        together = await asyncio.gather(*(source.open() for _ in range(USERS)), return_exceptions=True)
        assert {str(found) for found in together} == {str(error)}
        for _ in range(100):
            with pytest.raises(type(error), match=str(error)):
                await source.open()
        assert source.reads == 1
        clock.now += RETRY_SECONDS
        source.error = None
        assert await asyncio.gather(*(source.open() for _ in range(USERS)))
        assert source.reads == 2

    asyncio.run(start())


def test_one_in_use_is_renewed_in_the_background_at_most_once_a_minute(source: Source, clock: Clock) -> None:
    async def use() -> None:
        async with AsyncExitStack() as stack:
            users = [await opened(stack, source) for _ in range(100)]
            for expected in range(1, 4):
                for _ in range(6):
                    assert {user.current(source.read).access_token.reveal() for user in users} == {source.token}
                    await settle()
                    assert source.reads == expected
                    clock.now += RENEW_SECONDS / 6
                before, source.token = source.token, f"token-{expected}"
                assert users[0].current(source.read).access_token.reveal() == before  # nobody waits for it
                await settle()
        clock.now += 10 * RENEW_SECONDS
        await settle()

    asyncio.run(use())
    assert source.reads == 4  # the last one was not in use


def test_a_renewal_that_fails_changes_nothing_and_is_logged_once(
    source: Source, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        async with AsyncExitStack() as stack:
            users = [await opened(stack, source) for _ in range(100)]
            source.error = ConfigurationError("it is not defined")
            clock.now += RENEW_SECONDS
            for _ in range(3):
                assert {user.current(source.read).access_token.reveal() for user in users} == {"first"}
                await settle()
            source.error, source.token = None, "second"
            clock.now += RENEW_SECONDS
            users[0].current(source.read)
            await settle()
            assert users[1].current(source.read).access_token.reveal() == "second"

    with caplog.at_level(logging.WARNING, shared_connection.__name__):
        asyncio.run(use())
    assert [record.getMessage() for record in caplog.records] == [
        "Connection 'c' could not be read again (it is not defined); using it as it was"
    ]
    assert source.reads == 3


def test_after_a_rejection_it_is_read_at_once_and_once_for_all(source: Source, clock: Clock) -> None:
    async def use() -> None:
        async with AsyncExitStack() as stack:
            user = await opened(stack, source)
            rejected, source.token = user.current(source.read), "second"
            found = await asyncio.gather(*(user.after_rejection(rejected, source.read) for _ in range(USERS)))
            assert {one.access_token.reveal() for one in found} == {"second"}
            late = await user.after_rejection(rejected, source.read)  # whose token was replaced meanwhile
            assert late.access_token.reveal() == "second"
            assert user.current(source.read) is late
        assert source.reads == 2

    asyncio.run(use())


def test_a_rejected_token_that_was_not_replaced_is_not_read_by_each_in_turn(source: Source, clock: Clock) -> None:
    async def use() -> None:
        async with AsyncExitStack() as stack:
            user = await opened(stack, source)
            rejected = user.current(source.read)
            for _ in range(100):
                assert await user.after_rejection(rejected, source.read) == rejected
            assert source.reads == 2
            source.token = "second"
            clock.now += REREAD_SECONDS
            replaced = await user.after_rejection(rejected, source.read)
            assert replaced.access_token.reveal() == "second"
            source.token = "third"  # a moment later
            assert (await user.after_rejection(replaced, source.read)).access_token.reveal() == "third"

    asyncio.run(use())
    assert source.reads == 4


def test_a_read_that_began_before_the_rejection_does_not_prove_that_the_token_is_the_same(source: Source, clock: Clock) -> None:
    async def use() -> None:
        async with AsyncExitStack() as stack:
            user = await opened(stack, source)
            rejected = user.current(source.read)
            goes_on = asyncio.Event()
            source.delay = goes_on.wait
            clock.now += RENEW_SECONDS
            user.current(source.read)  # renews, and reads the old token
            await asyncio.sleep(0)
            source.token = "second"
            waiting = [asyncio.create_task(user.after_rejection(rejected, source.read)) for _ in range(100)]
            await asyncio.sleep(0)
            goes_on.set()
            assert {found.access_token.reveal() for found in await asyncio.gather(*waiting)} == {"second"}
        assert source.reads == 3

    asyncio.run(use())


def test_a_cancelled_first_reader_does_not_take_the_others_with_it(source: Source) -> None:
    async def start() -> Settings:
        first = asyncio.create_task(source.open())
        await asyncio.sleep(0)
        others = [asyncio.create_task(source.open()) for _ in range(100)]
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return (await asyncio.gather(*others))[0]

    assert asyncio.run(start()).access_token.reveal() == "first"
    assert source.reads == 1


def test_a_read_for_which_nobody_waits_any_more_ends_and_the_next_user_begins_another(source: Source) -> None:
    async def start() -> Settings:
        source.delay = lambda: asyncio.sleep(3600)
        first = asyncio.create_task(source.open())
        await asyncio.sleep(0.01)
        first.cancel()
        source.delay = lambda: asyncio.sleep(0)
        second = asyncio.create_task(source.open())
        with pytest.raises(asyncio.CancelledError):
            await first
        found = await second
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    assert asyncio.run(start()).access_token.reveal() == "first"
    assert source.reads == 2


def test_each_event_loop_and_each_connection_has_its_own(source: Source) -> None:
    async def start() -> None:
        await asyncio.gather(*(source.open(conn_id) for conn_id in ("a", "b") for _ in range(100)))

    threads = [threading.Thread(target=lambda: asyncio.run(start())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.reads == 4


def test_the_last_user_leaves_neither_a_task_nor_the_loop_behind(source: Source) -> None:
    async def start() -> weakref.ref[asyncio.AbstractEventLoop]:
        await asyncio.gather(*(source.open() for _ in range(3)))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(start())
    gc.collect()
    assert loop() is None


class Connections:
    """Counts what the hooks read from Airflow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        monkeypatch.setattr(cloudstore, "get_async_connection", self._read)

    async def _read(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        await asyncio.sleep(0.05)
        return await get_async_connection(*args, **kwargs)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    async def note(secret: str) -> None:
        found.append(secret)

    monkeypatch.setattr(compat, "amask_secret", note)
    return found


def test_hooks_read_once_and_mask_once_when_they_start_together(
    emulator: Emulator, connections: Connections, masked: list[str]
) -> None:
    async def poll(number: int) -> None:
        async with CloudStoreAsyncHook() as hook:
            assert await hook.poll_file(f"f{number}") is not None

    async def start() -> None:
        await asyncio.gather(*(poll(number) for number in range(200)))

    asyncio.run(start())
    assert emulator.state()["requests"] == {"link": 200}
    assert connections.reads == 1
    assert masked.count(emulator.access_token) == 1


def test_a_token_rotated_under_a_crowd_of_hooks_costs_one_read(
    emulator: Emulator, connections: Connections, masked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_file(emulator)

    async def use() -> None:
        async with AsyncExitStack() as stack:
            hooks = [await stack.enter_async_context(CloudStoreAsyncHook()) for _ in range(200)]
            emulator.call(lambda service: setattr(service, "access_token", "rotated-token"))
            monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection(emulator.url, "rotated-token"))
            assert set(await asyncio.gather(*(hook.poll_file("f1") for hook in hooks))) == {None}
            assert (await hooks[0].create_download_link("f1")).token

    asyncio.run(use())
    assert connections.reads == 2
    assert "rotated-token" in masked


def test_a_hook_in_use_notices_another_address_within_a_minute(
    emulator: Emulator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(other: Emulator) -> None:
        async with CloudStoreAsyncHook() as hook:
            assert await hook.poll_file("f1") is not None
            store_file(other)
            monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", other.connection)
            assert await hook.poll_file("f1") is not None
            clock.now += RENEW_SECONDS
            async with asyncio.timeout(30):  # the first poll begins to read the connection, in a thread
                while await hook.poll_file("f1") is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with Emulator() as other:
        asyncio.run(use(other))


def test_a_warning_about_a_connection_is_logged_once_for_all_hooks(
    emulator: Emulator,
    clock: Clock,
    connections: Connections,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(CloudStoreAsyncHook, "log", logging.getLogger("test"))
    plain = airflow_connection(emulator.url, emulator.access_token)
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", plain.replace('"cloudstore"', '"http"'))

    async def use() -> None:
        async with AsyncExitStack() as stack:
            hooks = [await stack.enter_async_context(CloudStoreAsyncHook()) for _ in range(50)]
            async with CloudStoreAsyncHook() as leaving:
                clock.now += RENEW_SECONDS
                await leaving.poll_file("f1")  # begins to read the connection again
            await settle()
            await asyncio.gather(*(hook.poll_file("f1") for hook in hooks))

    asyncio.run(use())
    warnings = [record.getMessage() for record in caplog.records if record.name == "test"]
    assert connections.reads == 2
    assert not [record for record in caplog.records if "could not be read again" in record.getMessage()]
    assert len(warnings) == 1
    assert "has the type 'http'" in warnings[0]
