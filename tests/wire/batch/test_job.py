"""What real time, threads and sockets can do to a batch; its rules are tested in virtual time, in tests/unit/batch."""

from __future__ import annotations

import asyncio
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
from airflow_provider_cloudstore.batch import throttle
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
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


@pytest.mark.parametrize("allowed", [7, 48])
def test_every_url_is_queued_once_over_as_many_connections_as_allowed(
    emulator: Emulator, job: Any, run: Run, urls: Urls, arrived: Arrived, allowed: int
) -> None:
    emulator.fault("delay", seconds=0.05, times=0)
    report = run(job(urls(500), max_concurrency=allowed))
    assert (counts(report), report.error) == ({"queued": 500}, None)
    assert sorted(arrived()) == sorted(urls(500))
    assert emulator.state()["connections"] == {"opened": allowed, "peak": allowed}


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
        {"kind": "status", "status": 500},
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


def test_while_a_store_is_away_only_two_seconds_are_sent(
    emulator: Emulator, job: Any, run: Run, urls: Urls, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "OUTAGE_LIMIT", 4.0)
    since: list[int] = []

    def fail() -> None:
        if requests(emulator) > 100:
            since.append(requests(emulator))
            raise ConnectionError("s3cret")

    folder.fails = fail
    report = run(job(urls(5000), folder=folder, requests_per_second=100))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert report.error.cause == "store"
    assert "s3cret" not in str(report.error)
    folder.fails = lambda: None
    assert 100 <= requests(emulator) <= since[0] + 16 + 2 * 100
    assert counts(run(job(urls(1000), folder=folder, number=2))) == {"queued": 1000}
    assert requests(emulator) - 1000 <= 16 + 2 * 100


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


@pytest.mark.parametrize(
    "fault", [{"kind": "delay", "seconds": 60}, {"kind": "status", "status": 429, "headers": {"Retry-After": "60"}}]
)
@pytest.mark.parametrize("ending", ["killed", "time_limit"])
def test_a_kill_ends_it_within_two_seconds_whatever_it_waits_for(
    emulator: Emulator, job: Any, run: Run, urls: Urls, fault: dict[str, Any], arrived: Arrived, ending: str
) -> None:
    began = time.monotonic()
    threading.Timer(0.4, lambda: emulator.fault(times=0, **fault)).start()
    ends = {"killed": lambda: time.monotonic() > began + 0.8} if ending == "killed" else {"time_limit": 0.8}
    report = run(job(urls(2000), **ends))
    assert time.monotonic() - began < 0.8 + AT_ONCE
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert ("execution_timeout" in str(report.error)) is (ending == "time_limit")
    assert report.counts[Status.QUEUED] == len(arrived())


@pytest.mark.parametrize("hangs", ["manifest", "receipts"])
def test_a_kill_ends_it_within_two_seconds_even_when_a_thread_hangs(
    emulator: Emulator, job: Any, run: Run, urls: Urls, folder: Any, hangs: str
) -> None:
    began, release = time.monotonic(), threading.Event()

    def manifest() -> Any:
        for number, url in enumerate(urls(600)):
            if hangs == "manifest" and number == 300:
                release.wait(60)
            yield Entry(number + 1, url)

    if hangs == "receipts":
        folder.fails = lambda: release.wait(60)
    with pytest.raises(errors.BatchInterruptedError):
        run(job([], read=lambda: manifest, folder=folder, killed=lambda: time.monotonic() > began + 0.7))
    took = time.monotonic() - began - 0.7
    release.set()
    assert took < AT_ONCE
    assert requests(emulator) == 0
