"""A batch against the emulator in a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.recording import Folder, Receipts, Try
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import settings

RunBatch = Callable[..., Report]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        yield running


@pytest.fixture
def run(emulator: Emulator) -> RunBatch:
    """Run a batch: its URLs, then what else a job is given."""

    def run(urls: list[str], *, max_concurrency: int = 16, folder: Folder | None = None, **more: Any) -> Report:
        own = settings(emulator.url, emulator.access_token, max_attempts=3, timeout=5.0)
        receipts = Receipts(folder, Try(("batch",)), "the folder") if folder is not None else None
        read = more.pop("read", lambda: list_manifest(urls))
        return asyncio.run(Job(read, lambda: own, Options(max_concurrency), receipts, **more).run())

    return run
