"""What real threads can do to a batch; its rules are tested in virtual time, in tests/unit/batch."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.receipts import Receipts, Try
from airflow_provider_cloudstore.batch.sender import Options
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import settings
from tests.unit.batch.folders import MemoryFolder

pytestmark = pytest.mark.slow  # make test-in-time

# Two seconds are promised, and checked in tests/unit/batch. What is waited for here takes a minute, and a machine may be busy.
AT_ONCE = 10.0


def test_a_kill_ends_it_within_two_seconds_even_when_a_thread_hangs(emulator: Emulator) -> None:
    own = settings(emulator.url, emulator.access_token)
    began, release, folder = time.monotonic(), threading.Event(), MemoryFolder()
    folder.fails = lambda: release.wait(60)
    job = Job(
        lambda: list_manifest(["https://source.example/1"]),
        lambda: own,
        Options(),
        Receipts(folder, Try(("batch",))),
        must_end=lambda: "the task was terminated" if time.monotonic() > began + 0.7 else "",
    )
    with pytest.raises(exceptions.BatchInterruptedError):
        asyncio.run(job.run())
    took = time.monotonic() - began - 0.7
    release.set()
    assert took < AT_ONCE
    assert emulator.state()["requests"] == {}
