"""What real time, threads and sockets can do to a batch; its rules are tested in virtual time, in tests/unit/batch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.recording import Receipts, Status, Try
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.emulator.faults import Fault, Kind, Work
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import settings
from tests.unit.batch.folders import MemoryFolder

pytestmark = pytest.mark.slow  # make test-in-time

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(500)]
CONCURRENCY = 48
# Two seconds are promised, and checked by make test-kill. What is waited for here takes a minute, and a machine may be busy.
AT_ONCE = 10.0


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        yield running


def run(emulator: Emulator, folder: MemoryFolder, **more: Any) -> Report:
    """Run a batch; ``more`` is what else a job is given."""
    own, receipts = settings(emulator.url, emulator.access_token, timeout=5.0), Receipts(folder, Try(("batch",)))
    return asyncio.run(Job(lambda: list_manifest(URLS), lambda: own, Options(CONCURRENCY), receipts, **more).run())


def test_every_url_is_queued_once_over_as_many_connections_as_allowed(emulator: Emulator) -> None:
    all_arrived = asyncio.Barrier(CONCURRENCY)

    class Together(Fault):
        """The first requests get their responses when as many have arrived, and not before."""

        async def apply(self, request: web.Request, work: Work) -> web.StreamResponse:
            await all_arrived.wait()
            return await work()

    emulator.call(lambda service: service.faults.append(Together(Kind.DELAY, times=CONCURRENCY)))
    report = run(emulator, MemoryFolder())
    assert (report.counts[Status.QUEUED], report.error) == (len(URLS), None)
    assert sorted(stored["source"] for stored in emulator.state()["files"]) == sorted(URLS)
    assert emulator.state()["connections"] == {"opened": CONCURRENCY, "peak": CONCURRENCY}


def test_a_kill_ends_it_within_two_seconds_even_when_a_thread_hangs(emulator: Emulator) -> None:
    began, release, folder = time.monotonic(), threading.Event(), MemoryFolder()
    folder.fails = lambda: release.wait(60)
    with pytest.raises(exceptions.BatchInterruptedError):
        run(emulator, folder, killed=lambda: time.monotonic() > began + 0.7)
    took = time.monotonic() - began - 0.7
    release.set()
    assert took < AT_ONCE
    assert emulator.state()["requests"] == {}
