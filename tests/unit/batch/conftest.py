"""A batch in a few words: stores and jobs as the tests of this folder need them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.manifest import Entry, Manifest, list_manifest
from airflow_provider_cloudstore.batch.recording import Folder, Receipts, Try
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import calls
from tests.support import settings
from tests.unit.batch.folders import MemoryFolder

MakeJob = Callable[..., Job]


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.01)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        yield running


@pytest.fixture
def job(emulator: Emulator) -> MakeJob:
    """Make a job: the URLs, then options of the batch and arguments of the job by name."""

    def make(urls: Iterable[Any], *, folder: Folder | None = None, **more: Any) -> Job:
        own = settings(emulator.url, emulator.access_token, max_attempts=3, timeout=5.0)
        options = Options(**{name: more.pop(name) for name in list(more) if name in Options.__dataclass_fields__})
        wanted = urls if isinstance(urls, list) else list(urls)
        receipts = Receipts(folder, Try(("batch",)), "the folder") if folder is not None else None
        read = more.pop("read", lambda: manifest_of(wanted))
        return Job(read, lambda: own, options, receipts, **more)

    return make


def manifest_of(urls: list[Any]) -> Manifest:
    return (lambda: iter(urls)) if urls and isinstance(urls[0], Entry) else list_manifest(urls)


@pytest.fixture
def run() -> Callable[[Job], Report]:
    return lambda job: asyncio.run(job.run())


@pytest.fixture
def urls() -> Callable[..., list[str]]:
    return lambda count, start=0: [
        f"https://source.example/{number}?sig=hunter{number}" for number in range(start, start + count)
    ]


@pytest.fixture
def arrived(emulator: Emulator) -> Callable[[], list[str]]:
    return lambda: [stored["source"] for stored in emulator.state()["files"]]
