"""What ends waiting for a store, and the threads in which it blocks. The lease itself is tested by the simulation."""

from __future__ import annotations

import asyncio
import threading

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import in_daemon_thread, retry_until
from tests.unit.batch.virtual import in_virtual_time, now


@in_virtual_time
async def test_a_store_that_does_not_respond_for_five_minutes_ends_the_batch() -> None:
    with pytest.raises(exceptions.BatchInterruptedError) as ended:
        await retry_until(lambda: asyncio.sleep(1e6), "the receipts cannot be written")
    assert now() == pytest.approx(300)
    assert ended.value.reason == "the receipts cannot be written: retried for 300 s (no response)"
    assert (ended.value.cause, ended.value.operation) == ("store", "batch upload")


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


def test_the_result_of_work_that_was_given_up_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    raised, threads = list[object](), list[threading.Thread]()
    monkeypatch.setattr(threading, "excepthook", raised.append)

    async def main() -> None:
        began, release = threading.Event(), threading.Event()

        def work() -> None:
            threads.append(threading.current_thread())
            began.set()
            release.wait(30)
            raise OSError("nobody hears it")

        future = in_daemon_thread(work)
        await asyncio.to_thread(began.wait, 30)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        release.set()
        await asyncio.to_thread(threads[0].join, 30)

    asyncio.run(main())
    assert raised == []
