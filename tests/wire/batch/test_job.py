"""What real time, threads and sockets can do to a batch; its rules are tested in virtual time, in tests/unit/batch."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.emulator.faults import Fault, Kind, Work
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import eventually
from tests.unit.batch.folders import MemoryFolder
from tests.wire.batch.conftest import RunBatch

pytestmark = pytest.mark.slow  # make test-in-time

# Two seconds are promised, and checked by make test-kill. What is waited for here takes a minute, and a machine may be busy.
AT_ONCE = 10.0


def urls(count: int) -> list[str]:
    return [f"https://source.example/{number}?sig=hunter{number}" for number in range(count)]


def arrived(emulator: Emulator) -> list[str]:
    return [stored["source"] for stored in emulator.state()["files"]]


def counts(report: Report) -> dict[str, int]:
    assert sum(report.counts.values()) == report.total
    return {status.value: count for status, count in report.counts.items() if count}


def requests(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def together(count: int) -> Fault:
    """A fault: the first requests get their responses when as many have arrived, and not before."""
    all_arrived = asyncio.Barrier(count)

    class Together(Fault):
        async def apply(self, request: web.Request, work: Work) -> web.StreamResponse:
            await all_arrived.wait()
            return await work()

    return Together(Kind.DELAY, times=count)


@pytest.mark.parametrize("allowed", [7, 48])
def test_every_url_is_queued_once_over_as_many_connections_as_allowed(emulator: Emulator, run: RunBatch, allowed: int) -> None:
    emulator.call(lambda service: service.faults.script.append(together(allowed)))
    report = run(urls(500), max_concurrency=allowed)
    assert (counts(report), report.error) == ({"queued": 500}, None)
    assert sorted(arrived(emulator)) == sorted(urls(500))
    assert emulator.state()["connections"] == {"opened": allowed, "peak": allowed}


def test_time_in_which_the_process_was_frozen_counts(tmp_path: Any) -> None:
    """SIGSTOP to a batch for longer than its lease: what it sends at thaw waits for a new checkpoint."""
    code = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from airflow_provider_cloudstore.batch.folder import PathFolder
        from airflow_provider_cloudstore.batch.job import Job
        from airflow_provider_cloudstore.batch.manifest import list_manifest
        from airflow_provider_cloudstore.batch.recording import Receipts, Try
        from airflow_provider_cloudstore.batch.sending import Options
        from airflow_provider_cloudstore.protocol.secrets import Secret
        from airflow_provider_cloudstore.protocol.settings import Settings

        url, token, folder, number = sys.argv[1:]
        own = Settings(url, Secret(token))
        manifest = list_manifest([f"https://source.example/{n}" for n in range(1500)])
        receipts = Receipts(PathFolder(Path(folder)), Try(("frozen",), int(number)), folder)
        report = asyncio.run(Job(lambda: manifest, lambda: own, Options(8, 250), receipts).run())
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
        assert old.communicate(timeout=60)[0].split()[-1] == "superseded"  # after what Airflow logs
        assert new.communicate(timeout=60)[0].split()[-1] == "None"  # after what Airflow logs
        assert 1500 <= requests(emulator) <= 1500 + 8 + 2 * 250


@pytest.mark.parametrize("hangs", ["manifest", "receipts"])
def test_a_kill_ends_it_within_two_seconds_even_when_a_thread_hangs(emulator: Emulator, run: RunBatch, hangs: str) -> None:
    began, release, folder = time.monotonic(), threading.Event(), MemoryFolder()

    def manifest() -> Iterator[Entry]:
        for number, url in enumerate(urls(600)):
            if hangs == "manifest" and number == 300:
                release.wait(60)
            yield Entry(number + 1, url)

    if hangs == "receipts":
        folder.fails = lambda: release.wait(60)
    with pytest.raises(exceptions.BatchInterruptedError):
        run([], read=lambda: manifest, folder=folder, killed=lambda: time.monotonic() > began + 0.7)
    took = time.monotonic() - began - 0.7
    release.set()
    assert took < AT_ONCE
    assert requests(emulator) == 0
