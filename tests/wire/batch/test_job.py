"""A batch against the emulator, over several tries."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import job as job_module
from airflow_provider_cloudstore.batch import report as report_module
from airflow_provider_cloudstore.batch import throttle
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.settings import Settings
from scripts.processes import free_port
from tests.support import eventually, settings

pytestmark = pytest.mark.slow  # make test-in-time

# Two seconds are promised, and checked by make test-kill. What is waited for here takes a minute, and a machine may be busy.
AT_ONCE = 10.0

Run = Callable[[Any], Report]
Urls = Callable[..., list[str]]
Arrived = Callable[[], list[str]]


def counts(report: Report) -> dict[str, int]:
    assert sum(report.counts.values()) == report.total
    return {status.value: count for status, count in report.counts.items() if count}


def requests(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def killed_after(emulator: Emulator, arrivals: int) -> Callable[[], bool]:
    return lambda: requests(emulator) > arrivals


# --- what is sent


def test_every_url_is_queued_once(emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived) -> None:
    report = run(job(urls(500)))
    assert (counts(report), report.error) == ({"queued": 500}, None)
    assert sorted(arrived()) == sorted(urls(500))
    assert emulator.state()["connections"]["opened"] <= 16


@pytest.mark.parametrize("fault", [None, {"kind": "status", "status": 400, "times": 1}])
def test_a_url_is_sent_once_however_often_the_manifest_lists_it(
    emulator: Emulator, job: Any, run: Run, urls: Urls, fault: dict[str, Any] | None
) -> None:
    one, two = urls(2)
    if fault:
        emulator.fault(**fault)
    ended = {"queued": 2, "skipped": 3} if fault is None else {"queued": 1, "failed": 1, "skipped": 3}
    assert counts(run(job([one, two, one, one, two]))) == ended
    assert requests(emulator) == 2


def test_a_bad_line_is_reported_with_its_number_and_the_rest_goes_on(job: Any, run: Run, urls: Urls) -> None:
    entries = [Entry(1, urls(1)[0]), Entry(2, None, "the line is not JSON"), Entry(3, "file:///x?sig=hunter2")]
    report = run(job([*entries, Entry(4, None)]))
    assert counts(report) == {"queued": 1, "failed": 3}
    assert [failure["line"] for failure in report.failures] == [2, 3, 4]
    assert "the first, in line 2: the line is not JSON;" in str(report.error)
    assert "nothing was sent" not in str(report.error)
    assert "hunter2" not in str(report.failures)


class Gate:
    """Holds every request until as many as expected are there, and for a moment in which one too many could come.

    :param expected: how many.
    """

    def __init__(self, expected: int) -> None:
        self.expected, self.here, self.peak = expected, 0, 0
        self.opened = asyncio.Event()

    def take(self, operation: str) -> Gate | None:
        return None if operation == "*" else self

    async def apply(self, request: Any, work: Callable[[], Any]) -> Any:
        self.here += 1
        self.peak = max(self.peak, self.here)
        try:
            if self.here == self.expected and not self.opened.is_set():
                await asyncio.sleep(0.3)
                self.opened.set()
            await asyncio.wait_for(self.opened.wait(), 30)
            return await work()
        finally:
            self.here -= 1


@pytest.mark.parametrize("allowed", [7, 48])
def test_no_more_requests_are_in_flight_than_allowed(emulator: Emulator, job: Any, run: Run, urls: Urls, allowed: int) -> None:
    gate = Gate(allowed)
    emulator.call(lambda service: setattr(service, "faults", gate))
    assert counts(run(job(urls(200), max_concurrency=allowed, own=settings(emulator.url, emulator.access_token)))) == {
        "queued": 200
    }
    assert gate.opened.is_set()
    assert gate.peak == allowed
    assert emulator.state()["connections"]["peak"] == allowed


def test_shards_share_a_manifest_and_duplicates_meet(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived
) -> None:
    wanted = urls(300) + urls(100)
    reports = [run(job(wanted, shard=(number, 3))) for number in range(3)]
    assert sorted(arrived()) == sorted(urls(300))
    assert sum(report.counts[Status.SKIPPED] for report in reports) == 100
    assert min(report.total for report in reports) > 80


def test_one_slow_upload_holds_nobody_back(emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any) -> None:
    emulator.fault("delay", seconds=60, times=1)
    own = settings(emulator.url, emulator.access_token, timeout=60.0)
    report = run(job(urls(1500), own=own, max_concurrency=4, store=state, killed=killed_after(emulator, 1499)))
    assert report.counts[Status.QUEUED] >= 1496  # all but the slow one, and those that the kill met
    before = requests(emulator)
    assert counts(run(job(urls(1500), store=state, number=2))) == {"queued": 1500}
    assert requests(emulator) <= before + 4


# --- the service


def test_a_rate_holds_for_the_whole_batch(job: Any, run: Run, urls: Urls) -> None:
    began = time.monotonic()
    run(job(urls(50), requests_per_second=50))
    assert time.monotonic() - began >= 0.9


def note_arrivals(emulator: Emulator) -> list[float]:
    moments: list[float] = []

    def replace(service: Any) -> None:
        take = service.faults.take

        def note(_: Any, name: str) -> Any:
            moments.append(time.monotonic())
            return take(name)

        service.faults = type("Noting", (), {"take": note})()

    emulator.call(replace)
    return moments


def test_nothing_is_sent_in_a_pause_that_the_service_asks_for_not_even_at_a_rate(
    emulator: Emulator, job: Any, run: Run, urls: Urls
) -> None:
    emulator.fault("delay", seconds=0.02, times=20)
    emulator.fault("status", status=429, headers={"Retry-After": "2"}, times=1)
    moments = note_arrivals(emulator)
    assert counts(run(job(urls(80), requests_per_second=60))) == {"queued": 80}
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert max(gaps) > 1  # less than the pause: what was on its way may arrive late
    assert len(moments) == 81


def test_a_storm_of_429_loses_nothing_and_sends_nothing_twice(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived
) -> None:
    emulator.fault("status", status=429, headers={"Retry-After": "0"}, times=6)
    began = time.monotonic()
    assert counts(run(job(urls(200)))) == {"queued": 200}
    assert sorted(arrived()) == sorted(urls(200))
    assert requests(emulator) == 206
    assert time.monotonic() - began > 1  # although the service asks for no time at all


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 429, "headers": {"Retry-After": "0.2"}},
        {"kind": "status", "status": 403},
        {"kind": "status", "status": 404},
        {"kind": "status", "status": 405},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 302, "headers": {"Location": "/login"}},
        {"kind": "status", "status": 200, "body": "<html>login", "headers": {"Content-Type": "text/html"}},
        {"kind": "drop_before"},
    ],
)  # fmt: skip
def test_a_service_that_fails_for_every_url_ends_the_batch_after_some_for_a_later_retry(
    emulator: Emulator, job: Any, run: Run, urls: Urls, monkeypatch: pytest.MonkeyPatch, state: Any, fault: Any
) -> None:
    monkeypatch.setattr(throttle, "_OUTAGE_LIMIT", 1.0)
    monkeypatch.setattr(throttle, "_INITIAL_PROBE_DELAY", 0.2)
    emulator.fault(times=0, **fault)
    report = run(job(urls(1000), store=state))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert not report.error.permanent
    assert report.counts[Status.QUEUED] == 0
    assert report.error.cause == ("rate_limit" if fault.get("status") == 429 else "service")
    assert requests(emulator) <= 5 + 16 + 4
    assert report.counts[Status.UNSENT] >= 1000 - 5 - 16 - 4
    emulator.call(lambda service: service.faults.script.clear())
    again = run(job(urls(1000), store=state, number=2))
    assert again.counts[Status.QUEUED] + again.counts[Status.UNKNOWN] == 1000
    assert again.counts[Status.UNKNOWN] == report.counts[Status.UNKNOWN] <= 5 + 16 + 4


def test_nobody_listens_for_a_while_and_no_url_is_lost(job: Any, run: Run, urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "_INITIAL_PROBE_DELAY", 0.2)
    port, closed = free_port(), threading.Event()
    own = settings(f"http://127.0.0.1:{port}", "secret-token", max_attempts=3, timeout=5.0)
    with ExitStack() as stack:
        started: list[Emulator] = []

        def listen() -> None:
            closed.wait(60)
            started.append(stack.enter_context(Emulator(fetch_delay=600, access_token="secret-token", port=port)))

        listening = threading.Thread(target=listen)
        listening.start()

        def note(record: logging.LogRecord) -> bool:
            closed.set()
            return True

        logging.getLogger(throttle.__name__).addFilter(note)
        report = run(job(urls(300), own=own))
        logging.getLogger(throttle.__name__).removeFilter(note)
        listening.join()
        assert closed.is_set()
        assert (counts(report), report.error) == ({"queued": 300}, None)
        assert requests(started[0]) == 300


def test_where_nobody_listens_the_batch_ends_so_that_a_retry_sends_all(
    emulator: Emulator, job: Any, run: Run, urls: Urls, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    monkeypatch.setattr(throttle, "_OUTAGE_LIMIT", 1.0)
    monkeypatch.setattr(throttle, "_INITIAL_PROBE_DELAY", 0.2)
    own = settings(f"http://127.0.0.1:{free_port()}", "secret-token", max_attempts=3, timeout=5.0)
    report = run(job(urls(300), own=own, store=state))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert not report.error.permanent
    assert report.counts[Status.QUEUED] + report.counts[Status.UNKNOWN] == 0
    assert counts(run(job(urls(300), store=state, number=2))) == {"queued": 300}
    assert requests(emulator) == 300


@pytest.mark.parametrize("status", [503, 404])
def test_a_service_that_fails_for_two_seconds_costs_a_few_urls_at_most(
    emulator: Emulator, job: Any, run: Run, urls: Urls, status: int
) -> None:
    emulator.fault("delay", seconds=0.01, times=0)

    def fail() -> None:
        eventually(lambda: requests(emulator) > 100, 30)
        emulator.call(lambda service: service.faults.script.clear())
        emulator.fault("status", status=status, times=0)
        time.sleep(2)
        emulator.call(lambda service: service.faults.script.clear())

    failing = threading.Thread(target=fail)
    failing.start()
    report = run(job(urls(1500)))
    failing.join()
    lost = report.counts[Status.UNKNOWN if status == 503 else Status.FAILED]
    assert lost <= 5 + 16 + 3
    assert report.counts[Status.QUEUED] == 1500 - lost


def test_a_url_that_is_refused_among_others_costs_one_request(emulator: Emulator, job: Any, run: Run, urls: Urls) -> None:
    emulator.fault("delay", seconds=0.01, times=10)
    emulator.fault("status", status=404, times=3)
    report = run(job(urls(100)))
    assert counts(report) == {"queued": 97, "failed": 3}
    assert isinstance(report.error, errors.BatchFailedError)
    assert requests(emulator) == 100


def test_failures_in_a_row_end_the_batch_whatever_they_are(emulator: Emulator, job: Any, run: Run, urls: Urls) -> None:
    emulator.fault("status", status=400, times=0)
    report = run(job(urls(1000), max_consecutive_failures=30))
    assert isinstance(report.error, errors.BatchStoppedError)
    assert report.error.cause == "refused"
    assert 30 <= requests(emulator) <= 30 + 16
    assert "30 URLs in a row" in str(report.error)
    assert f"{report.counts[Status.UNSENT]:,} unsent" in str(report.error)
    assert report.counts[Status.UNSENT] == 1000 - report.counts[Status.FAILED] >= 1000 - 46
    assert counts(run(job(urls(200), max_consecutive_failures=None))) == {"failed": 200}


def test_outcomes_that_nobody_knows_are_counted_apart_and_not_sent_again(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any
) -> None:
    emulator.fault("drop_after", times=3)
    emulator.fault("status", status=500, times=1)
    emulator.fault("status", status=400, times=1)
    report = run(job(urls(100), store=state))
    assert counts(report) == {"queued": 95, "unknown": 4, "failed": 1}
    assert requests(emulator) == 100
    assert "1 failed and 4 unknown, which may have been queued" in str(report.error)
    cleared = run(job(urls(100), store=state, number=2))
    assert counts(cleared) == {"queued": 96, "unknown": 4}
    assert requests(emulator) == 101
    assert {failure["status"] for failure in cleared.failures} == {"unknown"}
    opted_in = run(job(urls(100), store=state, number=3, retry_unknown_outcome=True))
    assert (counts(opted_in), opted_in.error) == ({"queued": 100}, None)
    assert requests(emulator) == 105


def test_they_are_sent_again_where_the_user_opted_in(emulator: Emulator, job: Any, run: Run, urls: Urls) -> None:
    emulator.fault("drop_before", times=3)
    assert counts(run(job(urls(100), retry_unknown_outcome=True))) == {"queued": 100}
    assert emulator.state()["effects"]["upload"] == 100


def test_a_token_that_is_rotated_half_way_is_picked_up(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived
) -> None:
    emulator.fault("delay", seconds=0.01, times=0)

    def rotate() -> None:
        eventually(lambda: requests(emulator) > 100, 30)
        emulator.call(lambda service: setattr(service, "access_token", "rotated-token"))

    rotating = threading.Thread(target=rotate)
    rotating.start()

    def reload() -> Settings:
        return settings(emulator.url, emulator.access_token)

    assert counts(run(job(urls(1000), reload=reload))) == {"queued": 1000}
    rotating.join()
    assert requests(emulator) > 1000  # the old token was refused
    assert len(set(arrived())) == len(arrived()) == 1000


def test_a_token_that_is_refused_for_good_ends_the_batch_and_leaves_the_rest_for_a_retry(
    emulator: Emulator, job: Any, run: Run, urls: Urls
) -> None:
    report = run(job(urls(100), token="wrong-token"))
    assert isinstance(report.error, errors.BatchStoppedError)
    assert (report.error.cause, report.error.status) == ("token", 401)
    assert counts(report) == {"unsent": 100}
    assert "100 unsent" in str(report.error)
    assert requests(emulator) <= 32


@pytest.mark.parametrize("bad", ["file:///x", "refused"])
def test_one_consecutive_failure_is_the_first_and_a_cleared_task_resumes_with_the_corrected_line(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived, state: Any, bad: str
) -> None:
    wanted = urls(100)
    if bad == "refused":
        emulator.fault("status", status=400, times=1)
    else:
        wanted[40] = bad
    first = run(job(wanted, max_consecutive_failures=1, store=state, max_concurrency=1))
    assert isinstance(first.error, errors.BatchStoppedError)
    assert counts(first) == ({"failed": 1, "unsent": 99} if bad == "refused" else {"queued": 40, "failed": 1, "unsent": 59})
    wanted[40] = urls(1, 500)[0]  # the line is corrected in its place
    again = run(job(wanted, max_consecutive_failures=1, store=state, number=2))
    assert (counts(again), again.error) == ({"queued": 100}, None)
    assert len(arrived()) == len(set(arrived())) == 100


@pytest.mark.parametrize(("failed", "unknown", "fails"), [(2, 0, False), (3, 0, True), (2, 1, True)])
def test_allowed_failures_let_the_batch_succeed_with_a_warning_but_never_unknown_ones(
    emulator: Emulator,
    job: Any,
    run: Run,
    urls: Urls,
    state: Any,
    caplog: pytest.LogCaptureFixture,
    failed: int,
    unknown: int,
    fails: bool,
) -> None:
    emulator.fault("status", status=400, times=failed)
    emulator.fault("drop_after", times=unknown) if unknown else None
    report = run(job(urls(50), allowed_failures=2, store=state, max_concurrency=1))
    assert (report.counts[Status.FAILED], report.counts[Status.UNKNOWN]) == (failed, unknown)
    assert isinstance(report.error, errors.BatchFailedError) is fails
    assert ("2 URLs failed, which allowed_failures=2 permits; the first, in line 1: HTTP 400" in caplog.text) is not fails
    before = requests(emulator)
    assert run(job(urls(50), allowed_failures=2, store=state, number=2)).counts[Status.QUEUED] == 50 - unknown
    assert requests(emulator) == before + failed


# --- over several tries


@pytest.mark.parametrize("keep", ["state", "receipts", "both"])
def test_an_interrupted_batch_resumes_where_it_stopped(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived, state: Any, folder: Any, keep: str
) -> None:
    kept = {**({"store": state} if keep != "receipts" else {}), **({"folder": folder} if keep != "state" else {})}
    emulator.fault("delay", seconds=0.02, times=0)
    wanted = [*urls(300), *urls(10)]
    first = run(job(wanted, killed=killed_after(emulator, 40), **kept))
    assert isinstance(first.error, errors.BatchInterruptedError)
    assert 0 < first.counts[Status.QUEUED] < 300
    again = run(job(wanted, number=2, **kept))
    assert (counts(again), again.error) == ({"queued": 300, "skipped": 10}, None)
    assert again.queued_earlier == first.counts[Status.QUEUED]
    assert sorted(arrived()) == sorted(urls(300))
    if keep != "state":
        receipts = folder.receipts()
        assert sorted(receipt["line"] for receipt in receipts) == list(range(1, 301))
        assert "hunter" not in json.dumps(receipts)
    if keep == "both":
        assert "settled" not in state.get("cloudstore_batch")


def test_with_receipts_a_url_is_found_wherever_it_stands(emulator: Emulator, job: Any, run: Run, urls: Urls, folder: Any) -> None:
    run(job(urls(200), folder=folder))
    run(job(list(reversed(urls(190)))[::2], folder=folder, number=2))
    assert requests(emulator) == 200


def test_with_the_state_alone_failed_lines_may_be_corrected_and_the_manifest_may_grow(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any
) -> None:
    wanted = urls(1000)
    wanted[700] = "file:///x"
    run(job(wanted, store=state))
    assert requests(emulator) == 999
    wanted[700] = urls(1, 5000)[0]
    assert counts(run(job(wanted, store=state, number=2))) == {"queued": 1000}
    assert requests(emulator) == 1000
    assert counts(run(job([*wanted, *urls(5, 9000)], store=state, number=3))) == {"queued": 1005}
    assert requests(emulator) == 1005


def test_the_state_of_a_failed_batch_sends_only_what_was_not_queued(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any
) -> None:
    emulator.fault("status", status=400, times=1)
    assert counts(run(job(urls(400), store=state))) == {"queued": 399, "failed": 1}
    for number in (2, 3):  # and the third, of a task that was cleared after it succeeded, sends nothing
        assert counts(run(job(urls(400), store=state, number=number))) == {"queued": 400}
        assert requests(emulator) == 401


def test_batches_that_share_a_folder_keep_their_own_parts(
    emulator: Emulator, job: Any, run: Run, urls: Urls, folder: Any
) -> None:
    jobs = [job(urls(100, 100 * number), folder=folder, scope=f"map {number}") for number in range(3)]

    async def together() -> list[Report]:
        return list(await asyncio.gather(*(one.run() for one in jobs)))

    assert [counts(report) for report in asyncio.run(together())] == [{"queued": 100}] * 3
    assert len(folder.receipts()) == 300
    assert counts(run(job(urls(100, 100), folder=folder, scope="map 1", number=2))) == {"queued": 100}
    assert requests(emulator) == 300


# --- nothing is sent on credit


@pytest.mark.parametrize("away", ["state", "receipts"])
def test_while_a_store_is_away_only_two_seconds_are_sent(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any, folder: Any, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(job_module, "OUTAGE_LIMIT", 4.0)
    store = state if away == "state" else folder
    since: list[int] = []

    def fail() -> None:
        if requests(emulator) > 100:
            since.append(requests(emulator))
            raise ConnectionError("s3cret")

    store.fails = fail
    report = run(job(urls(5000), store=state, folder=folder, requests_per_second=100))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert report.error.cause == "store"
    assert not report.error.permanent
    assert "s3cret" not in str(report.error)
    store.fails = lambda: None
    sent = requests(emulator)
    assert sent - since[0] <= 16 + 2 * 100
    assert sent >= 100
    assert counts(run(job(urls(1000), store=state, folder=folder, number=2))) == {"queued": 1000}
    twice = requests(emulator) - 1000
    assert twice <= 16 + 2 * 100


def test_one_failing_write_loses_no_line(emulator: Emulator, job: Any, run: Run, urls: Urls, folder: Any) -> None:
    emulator.fault("delay", seconds=0.02, times=0)
    moments = iter([False, False, False, True, False, False, True])

    def fail() -> None:
        if next(moments, False):
            raise OSError("try again")

    folder.fails = fail
    assert counts(run(job(urls(1500), folder=folder))) == {"queued": 1500}
    assert {receipt["line"] for receipt in folder.receipts()} == set(range(1, 1501))


def test_a_superseded_try_stops(emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any, folder: Any) -> None:
    for kept in ({"store": state}, {"folder": folder}):
        emulator.call(lambda service: service.store.requests.clear())

        async def both(kept: Any = kept) -> list[Any]:
            old = asyncio.create_task(job(urls(3000), requests_per_second=200, **kept).run())
            while requests(emulator) < 100:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            new = asyncio.create_task(job(urls(3000)[:300], number=2, requests_per_second=200, **kept).run())
            return [await old, await new]

        old, new = asyncio.run(both())
        assert old.error.cause == "superseded"
        assert (counts(new), new.error) == ({"queued": 300}, None)
        with pytest.raises(errors.BatchInterruptedError, match="has taken over"):
            run(job(urls(3000), number=1, **kept))


def test_time_in_which_the_process_was_frozen_counts(tmp_path: Any) -> None:
    """SIGSTOP to a batch for longer than its lease: what it sends at thaw waits for a new checkpoint."""
    code = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.manifest import list_manifest
        from airflow_provider_cloudstore.batch.receipts import Receipts
        from airflow_provider_cloudstore.batch.sending import Options
        from airflow_provider_cloudstore.batch.tries import STATE_KEY, Try
        from airflow_provider_cloudstore.hooks.folders import PathFolder
        from airflow_provider_cloudstore.protocol.secrets import Secret
        from airflow_provider_cloudstore.protocol.settings import Settings

        url, token, folder, number = sys.argv[1:]
        own = Settings(url, Secret(token))
        manifest = list_manifest([f"https://source.example/{n}" for n in range(1500)])
        writer = Try(("frozen",), int(number))
        receipts = Receipts(PathFolder(Path(folder)), writer)
        report = asyncio.run(Job(lambda: manifest, own, lambda: own, Options(8, 250), writer=writer, receipts=receipts).run())
        print(getattr(report.error, "cause", None))
        """
    )
    with Emulator(fetch_delay=600) as emulator:

        def start(number: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", code, emulator.url, emulator.access_token, str(tmp_path), str(number)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        old = start(1)
        eventually(lambda: requests(emulator) > 300, 60)
        os.kill(old.pid, signal.SIGSTOP)
        new = start(2)
        eventually(lambda: requests(emulator) > 800, 60)
        os.kill(old.pid, signal.SIGCONT)
        assert old.communicate(timeout=60)[0].strip() == "superseded"
        assert new.communicate(timeout=60)[0].strip() == "None"
        assert 1500 <= requests(emulator) <= 1500 + 8 + 2 * 250


def test_a_time_limit_ends_it_as_a_kill_does(emulator: Emulator, job: Any, run: Run, urls: Urls) -> None:
    emulator.fault("delay", seconds=60, times=0)
    began = time.monotonic()
    report = run(job(urls(1000), time_limit=0.5))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert "execution_timeout" in str(report.error)
    assert time.monotonic() - began < 0.5 + AT_ONCE


@pytest.mark.parametrize(
    "fault", [{"kind": "delay", "seconds": 60}, {"kind": "status", "status": 429, "headers": {"Retry-After": "60"}}]
)
def test_a_kill_ends_it_within_two_seconds_whatever_it_waits_for(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any, fault: dict[str, Any], arrived: Arrived
) -> None:
    began = time.monotonic()
    threading.Timer(0.4, lambda: emulator.fault(times=0, **fault)).start()
    report = run(job(urls(2000), store=state, killed=lambda: time.monotonic() > began + 0.8))
    assert time.monotonic() - began < 0.8 + AT_ONCE
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert report.counts[Status.QUEUED] == len(arrived())


@pytest.mark.parametrize("hangs", ["manifest", "state", "receipts", "counting"])
def test_a_kill_ends_it_within_two_seconds_even_when_the_manifest_or_a_store_hangs(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any, folder: Any, hangs: str
) -> None:
    began, release = time.monotonic(), threading.Event()

    def hang() -> None:
        if hangs in ("state", "receipts") or requests(emulator) >= 250:
            release.wait(60)

    if hangs in ("state", "receipts"):
        {"state": state, "receipts": folder}[hangs].fails = hang

    passes = itertools.count()

    def manifest() -> Any:
        turn = next(passes)
        for number, url in enumerate(urls(600)):
            if (hangs == "counting" and number == 300) or (hangs == "manifest" and turn == 1 and number == 300):
                release.wait(60)
            yield Entry(number + 1, url)

    batch = job([], read=lambda: manifest, store=state, folder=folder, killed=lambda: time.monotonic() > began + 0.7)
    if hangs == "manifest":
        assert isinstance(run(batch).error, errors.BatchInterruptedError)
    else:
        with pytest.raises(errors.BatchInterruptedError):
            run(batch)
    took = time.monotonic() - began - 0.7
    release.set()
    assert took < AT_ONCE
    assert requests(emulator) <= (300 if hangs == "manifest" else 0)


def test_a_task_that_is_killed_before_it_began_sends_nothing(emulator: Emulator, job: Any, run: Run, urls: Urls) -> None:
    with pytest.raises(errors.BatchInterruptedError):
        run(job(urls(100), killed=lambda: True))
    assert requests(emulator) == 0


def test_the_progress_is_stored_once_a_second_and_reported(
    emulator: Emulator, job: Any, run: Run, urls: Urls, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "_PROGRESS_INTERVAL", 1.0)
    emulator.fault("delay", seconds=0.1, times=0)
    lines: list[str] = []
    began = time.monotonic()
    run(job(urls(160), max_concurrency=5, store=state, report=lines.append))
    assert 3 <= len(state.writes) <= time.monotonic() - began + 4
    assert {write["writer"]["number"] for write in state.writes} == {1}
    assert "of 160 URLs done" in lines[1]  # after its plan


def test_a_receipts_folder_that_vanishes_ends_the_batch(job: Any, run: Run, urls: Urls, folder: Any, emulator: Emulator) -> None:
    batch = job(
        urls(500), folder=folder, requests_per_second=100, killed=lambda: requests(emulator) > 20 and folder.files.clear()
    )
    report = run(batch)
    assert isinstance(report.error, errors.BatchStoppedError)
    assert report.error.cause == "receipts"
    assert report.error.permanent
    assert requests(emulator) < 450


def test_a_key_that_holds_a_credential_is_redacted_in_the_receipts(job: Any, run: Run, folder: Any, emulator: Emulator) -> None:
    url = "https://user:hunter2secret@h/1?sig=hunter2secret"
    keys = [
        url,
        "user:hunter2secret",
        "//user:hunter2secret@h/1",
        emulator.access_token,
        "https://other/?sig=hunter2secret",
        "k7",
        7,
    ]
    run(job([Entry(at + 1, f"{url}&n={at}", key=key) for at, key in enumerate(keys)], folder=folder))
    assert len(folder.receipts()) == len(keys)
    assert "hunter2" not in str(folder.files)
    assert emulator.access_token not in str(folder.files)
    assert {receipt["key"] for receipt in folder.receipts()} >= {"k7", 7}
