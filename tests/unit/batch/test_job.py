"""A whole batch in virtual time: its end, whatever ends it, and what is stored by then."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.recording import Receipts, Status, Try
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import settings
from tests.unit.batch.folders import MemoryFolder
from tests.unit.batch.virtual import LOST, UNREACHABLE, VirtualService
from tests.unit.batch.whole_batch import HANGS, SETTINGS, Batch, cause, counts, urls

# --- what is kept


def test_everything_is_queued_once_and_a_cleared_task_sends_nothing(folder: MemoryFolder) -> None:
    batch = Batch([*urls(200), *urls(10)], folder=folder)
    for number in (1, 2):
        report = batch.run()
        assert (counts(report), report.error) == ({"queued": 200, "skipped": 10}, None)
        assert report.queued_earlier == (0 if number == 1 else 200)
        assert batch.left == 0
        assert batch.requests == 200
    lines = folder.receipts()
    assert sorted(line["line"] for line in lines) == list(range(1, 201))
    assert {(line["status"], line["try"]) for line in lines} == {("queued", 1)}


def test_a_manifest_may_be_corrected_reordered_and_grow_and_unknown_ones_are_sent_again_on_request(folder: MemoryFolder) -> None:
    batch = Batch(["file:///x", *urls(50)], VirtualService(lambda url, now: LOST if "/7?" in url else 200), folder)
    assert counts(batch.run()) == {"failed": 1, "queued": 49, "unknown": 1}
    batch.service.answers = lambda url, now: 200
    batch.wanted = [*reversed(urls(60)), *urls(5)]
    report = batch.run()
    assert (counts(report), report.queued_earlier) == ({"queued": 59, "unknown": 1, "skipped": 5}, 49)
    assert batch.requests == 60
    assert counts(batch.run(retry_unknown_outcome=True)) == {"queued": 60, "skipped": 5}
    assert batch.requests == 61


def test_a_damaged_receipt_is_no_outage_and_nothing_is_sent(folder: MemoryFolder, caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), folder=folder)
    batch.run()
    part = next(name for name in folder.files if name.startswith("part-"))
    folder.files[part] = folder.files[part][:-9]
    with pytest.raises(exceptions.BatchStoppedError, match=f"line 5 of .*{part} is damaged; nothing more was sent"):
        batch.run()
    assert "retrying" not in caplog.text
    assert batch.requests == 5


def test_the_mark_is_left_before_anything_else_can_fail() -> None:
    def fail() -> Any:
        raise exceptions.ConfigurationError("the connection has no host")

    folder = MemoryFolder(is_local=True)
    batch = Batch(urls(5), folder=folder)
    for broken in ("settings", "read"):
        with pytest.raises(exceptions.ConfigurationError):
            batch.run(**{broken: fail})  # type: ignore[arg-type]
    assert counts(batch.run()) == {"queued": 5}
    folder.files.clear()
    with pytest.raises(exceptions.BatchStoppedError, match="no receipts of an earlier try in the folder"):
        batch.run()
    assert batch.requests == 5


def test_without_receipts_a_retry_sends_all_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), VirtualService(lambda url, now: 400 if "/3?" in url else 200))
    for number in (1, 2):
        report = batch.run()
        assert counts(report) == {"queued": 4, "failed": 1}
        assert batch.requests == 5 * number
    assert caplog.messages.count("receipts=None: nothing is remembered, so a retry sends every URL again.") == 2


def test_the_log_begins_with_the_plan_and_shows_the_progress(folder: MemoryFolder, caplog: pytest.LogCaptureFixture) -> None:
    service = VirtualService(lambda url, now: UNREACHABLE if now > 10 else 200, seconds=1.0)
    with caplog.at_level(logging.INFO):
        Batch(urls(84), service, folder).run(max_concurrency=3)
    plan, first, *_, last = caplog.messages
    assert plan == "A batch of 84 URLs; receipts: the folder"
    assert first == "12 queued, 72 unsent of 84 URLs; 2 a second"
    assert last.startswith("33 queued, 51 unsent of 84 URLs; waiting for the service since ")


def test_an_empty_manifest_is_a_success() -> None:
    report = Batch([]).run()
    assert (report.total, report.error) == (0, None)


# --- what ends it


def test_a_kill_is_noticed_within_a_tenth_of_a_second_and_the_next_try_resumes_after_the_last_response(
    folder: MemoryFolder,
) -> None:
    batch = Batch(urls(300), VirtualService(seconds=0.5), folder)
    batch.kill_at = 2.65
    report = batch.run(max_concurrency=10)
    assert cause(report) == "terminated"
    assert counts(report) == {"queued": 60, "unsent": 240}
    assert batch.requests == 60
    assert batch.took == pytest.approx(3.0)  # responses in transit are awaited
    batch.kill_at = HANGS
    again = batch.run()
    assert (counts(again), again.queued_earlier) == ({"queued": 300}, 60)
    assert batch.requests == 300


def test_a_kill_ends_it_within_two_seconds_whatever_hangs(folder: MemoryFolder, caplog: pytest.LogCaptureFixture) -> None:
    service = VirtualService(lambda url, now: 200)
    batch = Batch(urls(1000), service, folder)
    batch.kill_at = 5.0

    async def hang(running: Any) -> None:
        await asyncio.sleep(2.5)
        service.seconds = HANGS
        await asyncio.sleep(1)
        batch.delay = lambda: HANGS

    report = batch.run(during=hang, max_concurrency=4)
    assert cause(report) == "terminated"
    assert batch.took <= 5.0 + 0.1 + 0.6 + 0.8 + 0.01
    assert "Could not store the last second of progress" in caplog.messages
    assert batch.left == 0


@pytest.mark.parametrize("ended_by", ["terminated", "timeout"])
@pytest.mark.parametrize("steps", range(5))
def test_it_ends_at_once_before_anything_is_sent(steps: int, ended_by: str) -> None:
    batch = Batch(urls(10), folder=MemoryFolder())
    delays = iter([0.0] * steps)
    batch.delay = lambda: next(delays, HANGS)
    batch.kill_at = 60 if ended_by == "terminated" else HANGS
    with pytest.raises(exceptions.BatchInterruptedError) if steps < 4 else nullcontext() as ended:
        report = batch.run(time_limit=60 if ended_by == "timeout" else HANGS)
    error = ended.value if ended else report.error
    assert isinstance(error, exceptions.BatchInterruptedError)
    assert error.cause == ended_by
    assert error.reason == ("execution_timeout is nearly over" if ended_by == "timeout" else "the task was terminated")
    assert 60 <= batch.took <= 62
    assert (batch.left, batch.requests) == (0, 0)


def test_receipts_that_cannot_be_used_for_five_minutes_end_it_and_a_store_that_recovers_does_not(folder: MemoryFolder) -> None:
    batch = Batch(urls(5), folder=folder)
    failures = [OSError()] * 1_000

    def fail() -> None:
        if failures:
            raise failures.pop()

    folder.fails = fail
    with pytest.raises(exceptions.BatchInterruptedError) as ended:
        batch.run()
    assert ended.value.reason == "the receipts cannot be written: retried for 300 s (OSError)"
    assert batch.took == pytest.approx(300)
    del failures[9:]
    assert counts(batch.run()) == {"queued": 5}
    assert 60 < batch.took < 100


def test_a_store_that_is_away_for_five_minutes_ends_it_and_only_two_seconds_were_sent(folder: MemoryFolder) -> None:
    batch = Batch(urls(2_000), VirtualService(seconds=0.05), folder)
    stopped = [0]

    def fail() -> None:
        if batch.requests > 500:
            stopped[0] = stopped[0] or batch.requests
            raise OSError

    folder.fails = fail
    report = batch.run(requests_per_second=100)
    assert cause(report) == "store"
    assert stopped[0] < batch.requests <= stopped[0] + 200
    assert 300 < batch.took < 310


def test_a_store_that_is_away_for_a_while_pauses_the_batch(folder: MemoryFolder) -> None:
    batch = Batch(urls(600), VirtualService(), folder)
    failures = [OSError()] * 5

    def fail() -> None:
        if batch.requests > 300 and failures:
            raise failures.pop()

    folder.fails = fail
    assert counts(batch.run(requests_per_second=100)) == {"queued": 600}
    assert batch.took > 15


def test_a_try_that_finds_the_mark_of_a_newer_one_stops_and_reports_its_counts(folder: MemoryFolder) -> None:
    batch = Batch(urls(1000), folder=folder)

    async def supersede(running: Any) -> None:
        await asyncio.sleep(2.5)
        Receipts(folder, Try(("batch",), 9), "the folder").begin()

    report = batch.run(during=supersede, max_concurrency=4)
    assert cause(report) == "superseded"
    assert report.counts[Status.QUEUED] >= 80
    assert report.counts[Status.UNSENT] > 800


def test_a_task_that_is_cancelled_stores_its_progress(folder: MemoryFolder) -> None:
    batch = Batch(urls(300), folder=folder)

    async def cancel(running: asyncio.Task[Report]) -> None:
        await asyncio.sleep(2.55)
        running.cancel()

    with pytest.raises(asyncio.CancelledError):
        batch.run(during=cancel, max_concurrency=4)
    assert batch.took < 4.5
    assert batch.left == batch.service.in_flight == 0
    sent = batch.requests
    assert 90 < sent < 120
    assert batch.run().queued_earlier == sent
    assert batch.requests == 300


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
    assert batch.run().queued_earlier >= 146


def test_a_rotated_token_is_read_again_and_used() -> None:
    batch = Batch(urls(100))
    tokens = list[str]()
    rotated = settings(token="rotated-token", max_attempts=3, timeout=1e6)
    send = batch.service.send

    async def check(request: Any, *more: Any) -> Any:
        tokens.append("new" if "rotated-token" in str(request.headers) + request.body.decode() else "old")
        batch.service.answers = lambda url, now: 200 if tokens[-1] == "new" else 401
        return await send(request, *more)

    batch.service.send = check  # type: ignore[method-assign]
    reloads = list[int]()

    def reload() -> Settings:
        reloads.append(1)
        return SETTINGS if len(reloads) == 1 else rotated

    report = batch.run(max_concurrency=1, settings=reload)
    assert counts(report) == {"queued": 100}
    assert (tokens.count("old"), len(reloads)) == (1, 2)  # later calls begin with the new one
