"""When a checkpoint allows sending, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import lease as lease_module
from airflow_provider_cloudstore.batch.lease import LEASE, Clock, Lease, Store, in_daemon_thread
from airflow_provider_cloudstore.protocol import errors
from tests.unit.batch.virtual import in_virtual_time, now


class SlowStore:
    """A store whose writes take time, and fail as they are told to.

    :ivar begun: when each attempt to write began, and what it wrote.
    :ivar written: when each write was durable, and what it wrote.
    """

    def __init__(self, name: str = "task state", seconds: float = 0.1) -> None:
        self.name, self.seconds = name, seconds
        self.fails: Callable[[], BaseException | None] = lambda: None
        self.begun: list[tuple[float, Any]] = []
        self.written: list[tuple[float, Any]] = []

    def store(self) -> Store:
        return Store(self.name, now, lambda snapshot: self.begun.append((now(), snapshot)))


def lease_of(*stores: SlowStore, outage_limit: float = 300) -> Lease:
    def in_thread(work: Callable[[], Any]) -> Awaitable[Any]:
        async def run() -> None:
            counts = [len(store.begun) for store in stores]
            work()
            (used,) = (store for store, count in zip(stores, counts, strict=True) if len(store.begun) > count)
            await asyncio.sleep(used.seconds)
            if error := used.fails():
                raise error
            used.written.append((now(), used.begun[-1][1]))

        return asyncio.get_running_loop().create_task(run())

    return Lease([store.store() for store in stores], outage_limit, now, in_thread)


def renewing(lease: Lease, written: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
    return asyncio.create_task(lease.renew(written))


# --- when it is valid


@in_virtual_time
async def test_nothing_is_allowed_before_the_first_checkpoint_is_durable() -> None:
    lease = lease_of(SlowStore(seconds=0.5))
    assert not lease.is_valid
    _task = renewing(lease)
    await asyncio.sleep(0.49)
    assert not lease.is_valid
    await lease.valid()
    assert now() == pytest.approx(0.5)


@in_virtual_time
async def test_a_checkpoint_allows_sending_for_two_seconds_from_its_snapshot_and_not_from_its_write() -> None:
    store = SlowStore(seconds=0.75)
    lease = lease_of(store)
    _task = renewing(lease)
    await lease.valid()
    store.seconds = 1000
    valid = dict[float, bool]()
    for moment in (1.99, 2.0):
        await asyncio.sleep(moment - now())
        valid[moment] = lease.is_valid
    assert valid == {1.99: True, LEASE: False}


@in_virtual_time
async def test_a_store_that_always_takes_longer_than_two_seconds_is_named_and_ends_the_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lease = lease_of(SlowStore(seconds=2.5))
    with pytest.raises(errors.BatchInterruptedError, match="storing the progress takes longer than 2 s") as ended:
        await lease.renew(lambda: None)
    assert ended.value.cause == "store"
    assert 300 < now() <= 305
    assert "Sending is paused: storing the progress takes longer than 2 s" in caplog.text


# --- checkpoints


@in_virtual_time
async def test_a_checkpoint_is_written_every_second_however_long_a_write_takes() -> None:
    store = SlowStore(seconds=0.3)
    lease = lease_of(store)
    _task = renewing(lease)
    await asyncio.sleep(5.5)
    assert [moment for moment, _ in store.begun] == pytest.approx([0, 1, 2, 3, 4, 5])
    store.seconds = 1.5
    await asyncio.sleep(10)
    moments = [moment for moment, _ in store.begun]
    assert moments[-1] - moments[-2] == pytest.approx(1.5)  # one after the other


@in_virtual_time
async def test_what_is_written_is_reported_before_anything_is_sent_on_it() -> None:
    lease, order = lease_of(SlowStore()), list[str]()

    async def send() -> None:
        await lease.valid()
        order.append("sent")

    sending = asyncio.create_task(send())
    _task = renewing(lease, lambda: order.append("written"))
    await sending
    assert order == ["written", "sent"]
    await asyncio.sleep(3.5)
    assert order.count("written") == 4


@in_virtual_time
async def test_stores_are_written_at_the_same_time_and_the_slower_one_delays_both() -> None:
    one, other = SlowStore("receipts folder", 0.2), SlowStore("task state", 0.9)
    lease = lease_of(one, other)
    _task = renewing(lease)
    await asyncio.sleep(0.5)
    assert [moment for moment, _ in one.written] == pytest.approx([0.2])
    assert not lease.is_valid
    await lease.valid()
    assert now() == pytest.approx(0.9)


@in_virtual_time
async def test_a_write_that_failed_is_repeated_with_the_same_snapshot_after_pauses_of_up_to_15_seconds() -> None:
    store = SlowStore(seconds=0.1)
    store.fails = lambda: OSError("s3cret") if now() < 60 else None
    _task = renewing(lease_of(store))
    await asyncio.sleep(70)
    moments = [0, 0.6, 1.7, 3.8, 7.9, 16, 31.1, 46.2, 61.3]
    assert [moment for moment, _ in store.begun[: len(moments)]] == pytest.approx(moments)
    assert {snapshot for _, snapshot in store.begun[: len(moments)]} == {0.0}
    assert store.written[0][1] == 0.0
    assert store.written[1][1] > 61.3


@in_virtual_time
async def test_a_failing_store_is_named_in_the_log_without_what_its_library_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = SlowStore()
    failures = [ConnectionError("s3cret")]
    store.fails = lambda: failures.pop() if failures else None
    lease = lease_of(store)
    _task = renewing(lease)
    await lease.valid()
    assert caplog.messages == ["Sending is paused: the task state cannot be written (ConnectionError); retrying"]


# --- when it gives up


@pytest.mark.parametrize(("hangs", "reason"), [(False, "OSError"), (True, "no response")])
@in_virtual_time
async def test_a_store_that_is_away_for_longer_than_the_limit_ends_the_batch(hangs: bool, reason: str) -> None:
    good, bad = SlowStore("receipts folder"), SlowStore("task state", 1e6 if hangs else 0.1)
    bad.fails = lambda: OSError("s3cret")
    with pytest.raises(errors.BatchInterruptedError) as ended:
        await lease_of(good, bad, outage_limit=42).renew(lambda: None)
    assert now() == pytest.approx(42)
    assert ended.value.cause == "store"
    assert ended.value.reason == f"the task state cannot be written: retried for 42 s ({reason})"
    assert ended.value.operation == "batch upload"


@in_virtual_time
async def test_an_error_of_ours_ends_the_batch_at_once_and_no_other_store_is_written_any_more() -> None:
    bad, slow = SlowStore("receipts folder"), SlowStore("task state", 50)
    bad.fails = lambda: errors.BatchStoppedError("it is a file", cause="receipts")
    with pytest.raises(errors.BatchStoppedError, match="it is a file"):
        await lease_of(bad, slow).renew(lambda: None)
    assert now() == pytest.approx(0.1)
    slow.fails = OSError
    await asyncio.sleep(200)
    assert len(slow.begun) == 1  # it is not repeated


@in_virtual_time
async def test_the_limit_counts_for_each_outage_anew() -> None:
    store = SlowStore()
    store.fails = lambda: OSError() if now() % 20 > 10 else None
    lease = lease_of(store, outage_limit=30)
    task = renewing(lease)
    await asyncio.sleep(200)
    assert not task.done()


# --- the end


@pytest.mark.parametrize("finishes_at", [0.05, 0.5, 3.05, 3.5])
@in_virtual_time
async def test_what_came_after_the_last_snapshot_is_written_at_the_end(finishes_at: float) -> None:
    store = SlowStore(seconds=0.1)
    lease = lease_of(store)
    task = renewing(lease)
    await asyncio.sleep(finishes_at)
    lease.finish()
    await task
    assert store.written[-1][1] >= finishes_at
    assert now() <= finishes_at + 0.2 + 0.01  # it does not wait for the second to pass
    assert sum(snapshot >= finishes_at for _, snapshot in store.written) == 1


# --- what it waits for


@in_virtual_time
async def test_what_it_waits_for_names_the_stores_that_are_away() -> None:
    one, other = SlowStore("receipts folder"), SlowStore("task state")
    lease = lease_of(one, other)
    assert lease.waits_for == "the receipts folder and the task state cannot be written"
    _task = renewing(lease)
    await lease.valid()
    assert lease.waits_for == ""
    other.fails = OSError
    await asyncio.sleep(2.5)
    assert lease.waits_for == "the task state cannot be written"
    one.fails, other.fails = other.fails, lambda: None
    await asyncio.sleep(10)
    assert lease.waits_for == "the receipts folder cannot be written"
    one.fails = lambda: None
    await asyncio.sleep(20)
    assert lease.waits_for == ""


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


def test_the_leases_clock_counts_a_step_of_either_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 100.0), (1.0, 101.0), (61.0, 101.5), (62.0, 4000.0), (63.0, 100.0)])
    monkeypatch.setattr(lease_module.Clock, "_read", staticmethod(lambda: next(readings)))
    clock = Clock()
    assert [clock() for _ in range(4)] == [1.0, 61.0, 61.0 + 3898.5, 62.0 + 3898.5]
