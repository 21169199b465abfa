"""A whole batch in virtual time: its end, whatever ends it, and what is stored by then."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import receipts as receipts_module
from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.batch.state import State
from airflow_provider_cloudstore.batch.tries import STATE_KEY, Try
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import settings
from tests.unit.batch.conftest import MemoryState
from tests.unit.batch.folders import MemoryFolder
from tests.unit.batch.virtual import VirtualService, run_virtually, settle

SETTINGS = settings(max_attempts=3, timeout=1e6)
HANGS = 1e6


def urls(count: int) -> list[str]:
    return [f"https://source.example/{number}" for number in range(count)]


class Batch:
    """A batch over several tries, with a service and stores in memory.

    :param wanted: the manifest.
    :ivar delay: how long blocking work takes from now on, in seconds.
    :ivar kill_at: when the task is terminated, in seconds after the begin of the try.
    :ivar took: for how long the last try ran.
    :ivar left: how many of its tasks still ran after it.
    :ivar log: the lines of its log.
    """

    def __init__(self, wanted: list[str], service: VirtualService | None = None, **stores: Any) -> None:
        self.wanted, self.stores = wanted, stores
        self.service = service or VirtualService()
        self.delay: Callable[[], float] = lambda: 0.0
        self.kill_at = float("inf")
        self.took, self.tries, self.left = 0.0, 0, 0
        self.log: list[str] = []

    def run(self, *, during: Callable[[asyncio.Task[Report]], Awaitable[None]] | None = None, **more: Any) -> Report:
        self.tries += 1
        self.log = []
        return run_virtually(self._run(during, more))

    async def _run(self, during: Any, more: dict[str, Any]) -> Report:
        loop = asyncio.get_running_loop()
        writer = Try(("batch",), self.tries)
        if "state" in self.stores:
            more["state"] = State(self.stores["state"], writer)
        if "folder" in self.stores:
            more["receipts"] = Receipts(self.stores["folder"], writer, "the folder")
        options = Options(**{name: more.pop(name) for name in list(more) if name in Options.__dataclass_fields__})
        defaults: dict[str, Any] = {
            "killed": lambda: loop.time() >= self.kill_at,
            "report": self.log.append,
            "connect": self.service.connect,
            "clock": loop.time,
            "in_thread": self.in_thread,
        }
        reload = more.pop("reload", lambda: SETTINGS)
        job = Job(lambda: list_manifest(self.wanted), SETTINGS, reload, options, writer=writer, **(defaults | more))
        before = asyncio.all_tasks()
        try:
            running = asyncio.create_task(job.run())
            if during:
                await during(running)
            return await running
        finally:
            self.took = loop.time()
            await settle()
            self.left = len(asyncio.all_tasks() - before)

    def in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        async def run() -> Any:
            await asyncio.sleep(self.delay())
            return work()

        return asyncio.get_running_loop().create_task(run())


def counts(report: Report) -> dict[str, int]:
    assert sum(report.counts.values()) == report.total
    return {status.value: count for status, count in report.counts.items() if count}


def cause(report: Report) -> str:
    assert isinstance(report.error, (errors.BatchInterruptedError, errors.BatchStoppedError)), report.error
    return report.error.cause


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
        assert len(batch.service.arrivals) == 200
    if "folder" in stores:
        lines = stores["folder"].receipts()
        assert sorted(line["line"] for line in lines) == list(range(1, 201))
        assert {(line["status"], line["try"]) for line in lines} == {("queued", 1)}
    if len(stores) == 2:
        assert stores["state"].get(STATE_KEY)["receipts"] is True


def test_a_try_resumes_where_an_earlier_one_was_terminated(stores: dict[str, Any]) -> None:
    batch = Batch(urls(1000), **stores)
    batch.kill_at = 2.55
    first = batch.run(max_concurrency=4)
    assert cause(first) == "terminated"
    assert 90 < first.counts[Status.QUEUED] < 120
    assert first.counts[Status.UNSENT] == 1000 - first.counts[Status.QUEUED]
    batch.kill_at = HANGS
    again = batch.run()
    assert (counts(again), again.queued_earlier) == ({"queued": 1000}, first.counts[Status.QUEUED])
    assert len(batch.service.arrivals) == 1000


def test_without_stores_a_retry_sends_all_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), VirtualService(lambda url, now: 400 if url.endswith("3") else 200))
    for number in (1, 2):
        report = batch.run()
        assert counts(report) == {"queued": 4, "failed": 1}
        assert len(batch.service.arrivals) == 5 * number
    assert caplog.messages.count("No state store and no `receipts`: a retry will resend every URL.") == 2


@pytest.mark.parametrize(("kept", "place"), [("state", "Airflow's state store"), ("folder", "the folder")])
def test_the_first_line_of_the_log_is_the_plan(kept: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    stores: dict[str, Any] = {kept: MemoryState() if kept == "state" else MemoryFolder()}
    batch = Batch(urls(5), **stores)
    report = batch.run(max_concurrency=3)
    assert report.error is None
    assert batch.log == [f"A batch of 5 URLs: at most 3 requests in flight; progress is kept in {place}."]
    assert caplog.messages == []


def test_the_state_has_the_progress_each_second() -> None:
    state = MemoryState()
    Batch(urls(1000), VirtualService(seconds=0.25), state=state).run(max_concurrency=10)
    assert 25 <= len(state.writes) <= 30
    assert {write["writer"]["number"] for write in state.writes} == {1}


def test_once_all_is_sent_the_last_checkpoint_may_take_its_time(stores: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), **stores)
    batch.delay = lambda: 20.0 if len(batch.service.arrivals) == 5 else 0.0
    assert batch.run(max_concurrency=1).error is None
    assert 40 < batch.took < 45  # the end of the manifest is read, then the checkpoint is written
    assert caplog.messages == []
    batch.delay = lambda: 0.0
    assert batch.run().queued_earlier == 5


def test_an_empty_manifest_is_a_batch_of_none_unless_it_is_refused() -> None:
    report = Batch([]).run()
    assert (report.total, report.error) == (0, None)
    with pytest.raises(errors.InvalidInputError, match="holds no URL"):
        Batch([]).run(allow_empty=False)


# --- what ends it


def test_a_kill_is_noticed_within_a_tenth_of_a_second_and_responses_in_transit_are_accepted_and_stored(
    stores: dict[str, Any],
) -> None:
    batch = Batch(urls(1000), VirtualService(seconds=0.5), **stores)
    batch.kill_at = 2.65
    report = batch.run(max_concurrency=10)
    assert cause(report) == "terminated"
    assert counts(report)["queued"] == len(batch.service.arrivals) == 60
    assert batch.took == pytest.approx(3.0)
    batch.kill_at = HANGS
    assert batch.run().queued_earlier == 60


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


@pytest.mark.parametrize("step", ["earlier", "manifest", "survey"])
def test_a_kill_ends_it_at_once_before_anything_is_sent(step: str) -> None:
    batch = Batch(urls(10), state=MemoryState())
    works = iter({"earlier": [], "manifest": [0.0], "survey": [0.0, 0.0]}[step])
    batch.delay = lambda: next(works, HANGS)
    batch.kill_at = 7.0
    with pytest.raises(errors.BatchInterruptedError) as ended:
        batch.run()
    assert ended.value.cause == "terminated"
    assert batch.took <= 7.11
    assert batch.left == 0
    assert batch.service.arrivals == []


@pytest.mark.parametrize(
    ("works", "waits"),
    [
        ([], "the progress of earlier tries cannot be read"),
        ([0.0], "the manifest is still being read"),
        ([0.0, 0.0], "the manifest is still being read"),
        ([0.0, 0.0, 0.0], "the receipts cannot be written"),
    ],
)
def test_at_a_time_limit_the_error_names_the_step_that_took_so_long(works: list[float], waits: str) -> None:
    batch = Batch(urls(10), state=MemoryState(), folder=MemoryFolder())
    left = iter(works)
    batch.delay = lambda: next(left, HANGS)
    with pytest.raises(errors.BatchInterruptedError) as ended:
        batch.run(time_limit=60)
    assert (ended.value.cause, ended.value.reason) == ("timeout", f"execution_timeout is nearly over and {waits}")
    assert 60 <= batch.took <= 60.11


@pytest.mark.parametrize("waits_for_store", [False, True])
def test_at_a_time_limit_the_error_names_the_store_that_is_away(waits_for_store: bool) -> None:
    state = MemoryState()
    batch = Batch(urls(10_000), VirtualService(seconds=1.0), state=state)

    def fail() -> None:
        if len(state.writes) > 5:
            raise OSError

    state.fails = fail if waits_for_store else lambda: None
    report = batch.run(time_limit=60)
    assert cause(report) == "timeout"
    assert report.error
    what = "execution_timeout is nearly over" + (" and the task state cannot be written" if waits_for_store else "")
    assert report.error.reason == what
    assert "\nOf 10,000 URLs: " in str(report.error)
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
    batch = Batch(urls(100_000), VirtualService(seconds=0.05), state=state)
    stopped = [0]

    def fail() -> None:
        if len(state.writes) > 5:
            stopped[0] = stopped[0] or len(batch.service.arrivals)
            raise OSError

    state.fails = fail
    report = batch.run(requests_per_second=100)
    assert cause(report) == "store"
    assert stopped[0] < len(batch.service.arrivals) <= stopped[0] + 200
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
    batch = Batch(urls(1000), **stores)

    async def cancel(running: asyncio.Task[Report]) -> None:
        await asyncio.sleep(2.55)
        running.cancel()

    with pytest.raises(asyncio.CancelledError):
        batch.run(during=cancel, max_concurrency=4)
    assert batch.took < 4.5
    sent = len(batch.service.arrivals)
    assert 90 < sent < 120
    assert batch.run().queued_earlier == sent
    assert len(batch.service.arrivals) == 1000


def test_a_bug_while_it_sends_is_raised_after_the_progress_is_stored() -> None:
    def answer(url: str, now: float) -> int:
        if url.endswith("/150") and now < 100:
            raise ZeroDivisionError
        return 200

    state = MemoryState()
    batch = Batch(urls(200), VirtualService(answer), state=state)
    with pytest.raises(ZeroDivisionError):
        batch.run(max_concurrency=4)
    batch.service.answers = lambda url, now: 200
    assert batch.run().queued_earlier >= 146


def test_nothing_is_sent_after_a_batch_that_the_token_ended_and_it_resumes(stores: dict[str, Any]) -> None:
    batch = Batch(urls(100), VirtualService(lambda url, now: 401 if now > 0.5 else 200), **stores)
    report = batch.run(max_concurrency=4)
    assert cause(report) == "token"
    assert "unsent" in str(report.error)
    assert batch.took < 3
    batch.service.answers = lambda url, now: 200
    assert counts(batch.run()) == {"queued": 100}


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


def test_progress_that_no_longer_fits_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cloudstore.batch.state._ROOM", 150)
    bad = set(random.Random(1).sample(range(3000), 1000))
    wanted = [f"file:///{at}" if at in bad else url for at, url in enumerate(urls(3000))]
    batch = Batch(wanted, state=MemoryState())
    report = batch.run(max_concurrency=10)
    assert cause(report) == "state"
    assert report.counts[Status.UNSENT] > 1000


def test_progress_is_logged_while_it_sends() -> None:
    batch = Batch(urls(280), VirtualService(seconds=1.0), state=MemoryState())
    batch.run(max_concurrency=10)
    assert 25 < batch.took < 29.9
    assert len(batch.log) == 1 + 5
    assert all(" of 280 URLs done, 0 failed, 0 unknown, " in line for line in batch.log[1:])


def test_a_session_has_a_connection_for_each_upload() -> None:
    limits = list[int]()
    batch = Batch(urls(100))

    def connect(own: Any, reload: Any, limit: int) -> Any:
        limits.append(limit)
        return batch.service.connect(own, reload, limit)

    batch.run(max_concurrency=7, connect=connect)
    assert limits == [7]
    assert batch.service.peak == 7


def test_shards_share_a_manifest() -> None:
    batches = [Batch(urls(300)) for _ in range(3)]
    reports = [batch.run(shard=(number, 3)) for number, batch in enumerate(batches)]
    assert sorted(url for batch in batches for url in batch.service.urls) == sorted(urls(300))
    assert sum(report.total for report in reports) == 300


# --- receipts that are added later


def test_receipts_take_over_what_the_state_store_holds_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cloudstore.batch.resume._LINES_AT_ONCE", 7)
    monkeypatch.setattr(receipts_module, "PART_SIZE", 500)
    state, folder = MemoryState(), MemoryFolder()
    batch = Batch(urls(50), VirtualService(lambda url, now: 500 if url.endswith("/31") else 200), state=state)
    batch.run()
    batch.stores["folder"] = folder
    report = batch.run()
    assert counts(report) == {"queued": 49, "unknown": 1}
    lines = folder.receipts()
    assert sorted(line["line"] for line in lines) == list(range(1, 51))
    assert [line["status"] for line in sorted(lines, key=lambda line: line["line"])][31] == "unknown"
    assert len(batch.service.arrivals) == 50
    batch.wanted = [*reversed(urls(50))]
    assert counts(batch.run()) == {"queued": 49, "unknown": 1}
    assert len(batch.service.arrivals) == 50
    assert len(folder.receipts()) == 50
    assert json.loads(state.text).get("settled") is None
