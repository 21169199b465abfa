"""The service behind real neighbours, and object stores, as fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.wire.neighbours.buckets import NAME, AzureContainer, Bucket, S3Bucket
from tests.wire.neighbours.servers import Neighbour, azurite, moto

Run = Callable[[AbstractContextManager[Neighbour]], Neighbour]


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator whose uploads stay queued; Airflow's connection leads there."""
    with Emulator(fetch_delay=3600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs a neighbour until the end of the test: ``run(nginx(server))``."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def run_front_end(emulator: Emulator, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a front end; Airflow's connection leads there."""

    def run_and_connect(front_end: AbstractContextManager[Neighbour]) -> Neighbour:
        running = run(front_end)
        connection = json.loads(emulator.connection) | {"host": running.url}
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
        return running

    return run_and_connect


@dataclass(frozen=True)
class Store:
    """A bucket, and connections of its own: Airflow keeps a connection's filesystem for as long as it runs."""

    bucket: Bucket

    def at(self, bucket: str, conn_id: str = "full") -> str:
        """The URL of a bucket, with the connection ``full`` or ``revocable``."""
        return f"{self.bucket.scheme}://{conn_id}_{self.bucket.server.port}@{bucket}"

    @property
    def root(self) -> str:
        """The URL of the bucket."""
        return self.at(NAME)


@pytest.fixture(params=["s3", "azure"])
def store(request: pytest.FixtureRequest, run: Run, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each object store."""
    bucket: Bucket = S3Bucket(run(moto())) if request.param == "s3" else AzureContainer(run(azurite()))
    for name, connection in {"full": bucket.connection(), "revocable": bucket.revocable()}.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}_{bucket.server.port}", json.dumps(connection))
    return Store(bucket)
