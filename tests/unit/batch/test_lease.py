"""When a checkpoint allows sending, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import LEASE, Lease, in_daemon_thread
from tests.unit.batch.virtual import in_virtual_time, now


class Store:
    """Receipts whose writes take time, and fail as they are told to; what is written is the time of the snapshot.

    :ivar begun: when each attempt to write began, and what it wrote.
    :ivar written: the snapshots that are durable.
    :ivar renewed: when the lease was renewed.
    """

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.fails: Callable[[], BaseException | None] = lambda: None
        self.begun: list[tuple[float, float]] = []
        self.written: list[float] = []
        self.renewed: list[float] = []
        self.lease = Lease(now, lambda snapshot: self.begun.append((now(), snapshot)), now, self._in_thread)

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        async def run() -> None:
            work()
            await asyncio.sleep(self.seconds)
            if error := self.fails():
                raise error
            self.written.append(self.begun[-1][1])

        return asyncio.get_running_loop().create_task(run())

    def renew(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.lease.renew(lambda: self.renewed.append(now())))


# --- when it is valid


@in_virtual_time
async def test_a_checkpoint_allows_sending_for_two_seconds_from_its_snapshot_and_not_from_its_write() -> None:
    store = Store(0.75)
    _task = store.renew()
    await asyncio.sleep(0.8)
    store.seconds = 1000
    valid = dict[float, bool]()
    for moment in (1.99, 2.0):
        await asyncio.sleep(moment - now())
        valid[moment] = store.lease.is_valid
    assert valid == {1.99: True, LEASE: False}


@in_virtual_time
async def test_a_store_that_takes_longer_than_two_seconds_is_told(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(2.5)
    _task = store.renew()
    await asyncio.sleep(6)
    assert not store.lease.is_valid
    assert set(caplog.messages) == {"Sending is paused: writing the receipts takes longer than 2 s"}


# --- checkpoints


# --- when it gives up


@pytest.mark.parametrize(("seconds", "reason"), [(0.1, "OSError"), (1e6, "no response")])
@in_virtual_time
async def test_a_store_that_is_away_for_five_minutes_ends_the_batch(seconds: float, reason: str) -> None:
    store = Store(seconds)
    store.fails = lambda: OSError("s3cret")
    with pytest.raises(exceptions.BatchInterruptedError) as ended:
        await store.renew()
    assert now() == pytest.approx(300)
    assert ended.value.reason == f"the receipts cannot be written: retried for 300 s ({reason})"
    assert (ended.value.cause, ended.value.operation) == ("store", "batch upload")


# --- the end


@pytest.mark.parametrize("finishes_at", [0.05, 0.5, 3.05, 3.5])
@in_virtual_time
async def test_what_came_after_the_last_snapshot_is_written_at_the_end(finishes_at: float) -> None:
    store = Store()
    task = store.renew()
    await asyncio.sleep(finishes_at)
    store.lease.finish()
    await task
    assert store.written[-1] >= finishes_at
    assert now() <= finishes_at + 0.2 + 0.01  # it does not wait for the second to pass
    assert sum(snapshot >= finishes_at for snapshot in store.written) == 1


# --- threads


def test_work_in_a_daemon_thread_hands_back_its_result_or_its_error() -> None:
    async def main() -> None:
        assert await in_daemon_thread(lambda: threading.current_thread().daemon)
        for error in (OSError("x"), SystemExit(3)):

            def fail(error: BaseException = error) -> None:
                raise error

            with pytest.raises(type(error)) as raised:
                await asyncio.wait_for(in_daemon_thread(fail), 30)
            assert raised.value is error

    asyncio.run(main())


def test_the_result_of_work_that_was_given_up_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        began, release, done = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            release.wait(30)
            done.set()
            raise OSError("nobody hears it")

        future = in_daemon_thread(work)
        await asyncio.to_thread(began.wait, 30)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        release.set()
        await asyncio.to_thread(done.wait, 30)
        await in_daemon_thread(lambda: None)  # its result comes after that of the first

    asyncio.run(main())
    assert caplog.messages == []
