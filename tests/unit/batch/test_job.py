"""A whole batch in virtual time: its end, whatever ends it, and what is stored by then. The simulation tests the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import retry_until
from airflow_provider_cloudstore.batch.receipts import Status
from tests.support import settings
from tests.unit.batch.folders import MemoryFolder
from tests.unit.batch.virtual import LOST, VirtualService, in_virtual_time, now
from tests.unit.batch.whole_batch import HANGS, SETTINGS, Batch, counts, urls

# --- what is kept


def test_a_manifest_may_be_corrected_reordered_and_grow_and_unknown_ones_are_sent_again_on_request() -> None:
    batch = Batch(["file:///x", *urls(50)], VirtualService(lambda url, now: LOST if "/7?" in url else 200), MemoryFolder())
    assert counts(batch.run()) == {"failed": 1, "queued": 49, "unknown": 1}
    batch.service.answers = lambda url, now: 200
    batch.wanted = [*reversed(urls(60)), *urls(5)]
    report = batch.run()
    assert (counts(report), report.earlier[Status.QUEUED]) == ({"queued": 59, "unknown": 1, "skipped": 5}, 49)
    (failure,) = report.failures
    assert (failure["url"], failure["error"]) == ("https://source.example/7?***", "unknown since an earlier try")
    assert batch.requests == 60
    assert counts(batch.run(retry_unknown_outcome=True)) == {"queued": 60, "skipped": 5}
    assert batch.requests == 61


def test_the_owner_file_is_written_before_anything_else_can_fail() -> None:
    def fail() -> Any:
        raise exceptions.ConfigurationError("the connection has no host")

    batch = Batch(urls(5), folder=MemoryFolder(is_local=True))
    for broken in ("settings", "read"):
        with pytest.raises(exceptions.ConfigurationError):
            batch.run(**{broken: fail})
    assert counts(batch.run()) == {"queued": 5}


# --- what ends it


def test_a_kill_is_noticed_within_a_tenth_of_a_second_and_the_next_try_resumes_after_the_last_response() -> None:
    batch = Batch(urls(300), VirtualService(seconds=0.5), MemoryFolder())
    batch.kill_at = 2.65
    report = batch.run(max_concurrency=10)
    assert "the task was terminated" in str(report.error)
    assert counts(report) == {"queued": 60, "unsent": 240}
    assert batch.requests == 60
    assert batch.took == pytest.approx(3.0)  # responses in transit are awaited
    batch.kill_at = HANGS
    again = batch.run()
    assert (counts(again), again.earlier[Status.QUEUED]) == ({"queued": 300}, 60)
    assert batch.requests == 300


def test_a_kill_ends_it_within_two_seconds_whatever_hangs(caplog: pytest.LogCaptureFixture) -> None:
    service = VirtualService(lambda url, now: 200)
    batch = Batch(urls(1000), service, MemoryFolder())
    batch.kill_at = 5.0

    async def hang() -> None:
        await asyncio.sleep(2.5)
        service.seconds = HANGS
        await asyncio.sleep(1)
        batch.delay = lambda: HANGS

    report = batch.run(during=hang, max_concurrency=4)
    assert "the task was terminated" in str(report.error)
    assert batch.took <= 5.0 + 0.1 + 0.6 + 0.8 + 0.01
    assert "Could not store the last second of progress" in caplog.messages
    assert batch.left == 0


@pytest.mark.parametrize(("hangs", "reason"), [(True, "no response"), (False, "OSError")])
@in_virtual_time
async def test_a_store_that_fails_is_tried_again_every_second_and_ends_it_after_five_minutes(hangs: bool, reason: str) -> None:
    tried = list[float]()

    async def fail() -> None:
        tried.append(now())
        if hangs:
            await asyncio.sleep(HANGS)
        raise OSError

    with pytest.raises(exceptions.BatchInterruptedError) as ended:
        await retry_until(fail, "the receipts cannot be written")
    assert now() == pytest.approx(300)
    assert len(tried) == (1 if hangs else 300)
    assert ended.value.reason == f"the receipts cannot be written: retried for 300 s ({reason})"


def test_a_bug_while_it_sends_is_raised_after_the_progress_is_stored() -> None:
    def answer(url: str, now: float) -> int:
        if "/150?" in url and now < 100:
            raise ZeroDivisionError
        return 200

    batch = Batch(urls(200), VirtualService(answer), MemoryFolder())
    with pytest.raises(ZeroDivisionError):
        batch.run(max_concurrency=4)
    assert batch.requests < 160
    batch.service.answers = lambda url, now: 200
    assert batch.run().earlier[Status.QUEUED] >= 146


def test_a_rotated_token_is_read_again_once_and_used_from_then_on() -> None:
    batch, has_new = Batch(urls(20)), list[bool]()
    send = batch.service.send

    async def check(request: Any, *more: Any) -> Any:
        has_new.append("rotated-token" in str(request.headers) + request.body.decode())
        batch.service.answers = lambda url, now: 200 if has_new[-1] else 401
        return await send(request, *more)

    batch.service.send = check  # type: ignore[method-assign]
    connections = iter([SETTINGS, settings(token="rotated-token", max_attempts=3, timeout=1e6)])
    assert counts(batch.run(max_concurrency=1, settings=lambda: next(connections))) == {"queued": 20}
    assert has_new == [False] + [True] * 20
