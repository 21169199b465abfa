"""A whole batch in virtual time: its end, whatever ends it, and what is stored by then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.state import State
from airflow_provider_cloudstore.batch.tries import STATE_KEY, Try
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import settings
from tests.unit.batch.conftest import MemoryState
from tests.unit.batch.folders import MemoryFolder
from tests.unit.batch.virtual import VirtualService
from tests.unit.batch.whole_batch import HANGS, Batch, cause, counts, urls


@pytest.fixture(params=["state", "receipts", "both"])
def stores(request: pytest.FixtureRequest) -> dict[str, Any]:
    kept: dict[str, Any] = {"state": MemoryState()} if request.param != "receipts" else {}
    return kept | ({"folder": MemoryFolder()} if request.param != "state" else {})


# --- what is kept


def test_everything_is_queued_once_and_a_cleared_task_sends_nothing(stores: dict[str, Any]) -> None:
    batch = Batch([*urls(200), *urls(10)], **stores)
    for number in (1, 2):
        report = batch.run()
        assert (counts(report), report.error) == ({"queued": 200, "skipped": 10}, None)
        assert report.queued_earlier == (0 if number == 1 else 200)
        assert batch.left == 0
        assert batch.requests == 200
    if "folder" in stores:
        lines = stores["folder"].receipts()
        assert sorted(line["line"] for line in lines) == list(range(1, 201))
        assert {(line["status"], line["try"]) for line in lines} == {("queued", 1)}
    if len(stores) == 2:
        assert stores["state"].get(STATE_KEY)["receipts"] is True


def test_without_stores_a_retry_sends_all_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), VirtualService(lambda url, now: 400 if "/3?" in url else 200))
    for number in (1, 2):
        report = batch.run()
        assert counts(report) == {"queued": 4, "failed": 1}
        assert batch.requests == 5 * number
    assert caplog.messages.count("No state store and no `receipts`: a retry will resend every URL.") == 2


@pytest.mark.parametrize(("kept", "place"), [("state", "Airflow's state store"), ("folder", "the folder")])
def test_the_log_begins_with_the_plan_and_shows_the_progress(kept: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    stores: dict[str, Any] = {kept: MemoryState() if kept == "state" else MemoryFolder()}
    batch = Batch(urls(84), VirtualService(seconds=1.0), **stores)
    assert batch.run(max_concurrency=3).error is None
    assert 25 < batch.took < 29.9
    plan, *progress = batch.log
    assert plan == f"A batch of 84 URLs: at most 3 requests in flight; progress is kept in {place}."
    assert len(progress) == 5
    assert all(" of 84 URLs done, 0 failed, 0 unknown, " in line for line in progress)
    assert caplog.messages == []


def test_once_all_is_sent_the_last_checkpoint_may_take_its_time(stores: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), **stores)
    batch.delay = lambda: 20.0 if batch.requests == 5 else 0.0
    assert batch.run(max_concurrency=1).error is None
    assert 40 < batch.took < 45  # the end of the manifest is read, then the checkpoint is written
    assert caplog.messages == []
    batch.delay = lambda: 0.0
    assert batch.run().queued_earlier == 5


def test_an_empty_manifest_is_refused_unless_it_is_allowed_but_an_empty_shard_is_not() -> None:
    report = Batch([]).run()
    assert (report.total, report.error) == (0, None)
    with pytest.raises(errors.InvalidInputError, match="holds no URL: set allow_empty=True"):
        Batch([]).run(allow_empty=False)
    shards = [Batch(urls(1)) for _ in range(3)]
    assert sorted(batch.run(shard=(number, 3), allow_empty=False).total for number, batch in enumerate(shards)) == [0, 0, 1]
    assert [url for batch in shards for url in batch.service.urls] == urls(1)


# --- what ends it


def test_a_kill_is_noticed_within_a_tenth_of_a_second_and_the_next_try_resumes_after_the_last_response(
    stores: dict[str, Any],
) -> None:
    batch = Batch(urls(300), VirtualService(seconds=0.5), **stores)
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


def test_a_kill_ends_it_within_two_seconds_whatever_hangs(stores: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    service = VirtualService(lambda url, now: 200)
    batch = Batch(urls(1000), service, **stores)
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


@pytest.mark.parametrize("ended_by", ["kill", "time limit"])
@pytest.mark.parametrize(
    ("steps", "waits"),
    [
        (0, "the progress of earlier tries cannot be read"),
        (1, "the manifest is still being read"),
        (2, "the manifest is still being read"),
        (3, "the receipts cannot be written"),
    ],
)
def test_it_ends_at_once_before_anything_is_sent_and_a_time_limit_names_the_step_that_hangs(
    steps: int, waits: str, ended_by: str
) -> None:
    batch = Batch(urls(10), state=MemoryState(), folder=MemoryFolder())
    delays = iter([0.0] * steps)
    batch.delay = lambda: next(delays, HANGS)
    batch.kill_at = 60 if ended_by == "kill" else HANGS
    with pytest.raises(errors.BatchInterruptedError) as ended:
        batch.run(time_limit=60 if ended_by == "time limit" else HANGS)
    if ended_by == "kill":
        assert ended.value.cause == "terminated"
    else:
        assert (ended.value.cause, ended.value.reason) == ("timeout", f"execution_timeout is nearly over and {waits}")
    assert 60 <= batch.took <= 60.11
    assert (batch.left, batch.requests) == (0, 0)


@pytest.mark.parametrize("waits_for_store", [False, True])
def test_at_a_time_limit_the_error_names_the_store_that_is_away(waits_for_store: bool) -> None:
    state = MemoryState()
    batch = Batch(urls(2_000), VirtualService(seconds=1.0), state=state)

    def fail() -> None:
        if len(state.writes) > 5:
            raise OSError

    state.fails = fail if waits_for_store else lambda: None
    report = batch.run(time_limit=60)
    assert cause(report) == "timeout"
    assert report.error
    what = "execution_timeout is nearly over" + (" and the task state cannot be written" if waits_for_store else "")
    assert report.error.reason == what
    assert "\nOf 2,000 URLs: " in str(report.error)
    assert 60 <= batch.took <= 62


def test_a_store_that_cannot_be_read_for_five_minutes_ends_it_and_one_that_recovers_does_not() -> None:
    state = MemoryState()
    batch = Batch(urls(5), state=state)
    failures = [OSError()] * 1_000

    def fail() -> None:
        if failures:
            raise failures.pop()

    state.fails = fail
    with pytest.raises(errors.BatchInterruptedError) as ended:
        batch.run()
    assert ended.value.reason == "the progress of earlier tries cannot be read: retried for 300 s (OSError)"
    assert batch.took == pytest.approx(300)
    del failures[9:]
    assert counts(batch.run()) == {"queued": 5}
    assert 60 < batch.took < 100


def test_a_store_that_is_away_for_five_minutes_ends_it_and_only_two_seconds_were_sent() -> None:
    state = MemoryState()
    batch = Batch(urls(2_000), VirtualService(seconds=0.05), state=state)
    stopped = [0]

    def fail() -> None:
        if len(state.writes) > 5:
            stopped[0] = stopped[0] or batch.requests
            raise OSError

    state.fails = fail
    report = batch.run(requests_per_second=100)
    assert cause(report) == "store"
    assert stopped[0] < batch.requests <= stopped[0] + 200
    assert 300 < batch.took < 310


def test_a_try_that_finds_the_mark_of_a_newer_one_stops_and_reports_its_counts(stores: dict[str, Any]) -> None:
    batch = Batch(urls(1000), **stores)

    async def supersede(running: Any) -> None:
        await asyncio.sleep(2.5)
        newer = Try(("batch",), 9)
        if "folder" in stores:
            Receipts(stores["folder"], newer, "the folder").begin()
        else:
            State(stores["state"], newer).claim()

    report = batch.run(during=supersede, max_concurrency=4)
    assert cause(report) == "superseded"
    assert report.counts[Status.QUEUED] >= 80
    assert report.counts[Status.UNSENT] > 800


def test_a_task_that_is_cancelled_stores_its_progress(stores: dict[str, Any]) -> None:
    batch = Batch(urls(300), **stores)

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

    batch = Batch(urls(200), VirtualService(answer), state=MemoryState())
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
        return rotated

    report = batch.run(max_concurrency=1, reload=reload)
    assert counts(report) == {"queued": 100}
    assert (tokens.count("old"), len(reloads)) == (1, 1)  # later calls begin with the new one


def test_after_an_upload_is_lost_on_a_kept_alive_connection_each_upload_opens_its_own(
    job: Any, run: Any, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.fault("delay", seconds=0.01, times=5)
    emulator.fault("drop_after", times=1)
    assert counts(run(job(urls(20), max_concurrency=1))) == {"queued": 19, "unknown": 1}
    assert emulator.state()["connections"]["opened"] == 1 + 14
    assert caplog.text.count("from now on each upload opens a connection of its own") == 1
