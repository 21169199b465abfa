"""The service behind real neighbours, and object stores, as fixtures."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.wire.neighbours.buckets import AzureContainer, Bucket, S3Bucket
from tests.wire.neighbours.servers import Neighbour, azurite, moto

Run = Callable[[AbstractContextManager[Neighbour]], Neighbour]


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator whose uploads stay queued; Airflow's connection leads there."""
    with Emulator(fetch_delay=3600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


@pytest.fixture
def run_front_end(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a front end until the end of the test; Airflow's connection leads there."""
    with ExitStack() as stack:

        def run_and_connect(front_end: AbstractContextManager[Neighbour]) -> Neighbour:
            running = stack.enter_context(front_end)
            connection = json.loads(emulator.connection) | {"host": running.url}
            monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
            return running

        yield run_and_connect


@pytest.fixture(scope="session", params=[(S3Bucket, moto), (AzureContainer, azurite)], ids=["s3", "azure"])
def object_store(request: pytest.FixtureRequest) -> Iterator[tuple[type[Bucket], Neighbour]]:
    """Each object store, with the type of its buckets."""
    kind, run = request.param
    with run() as running:
        yield kind, running


@pytest.fixture
def bucket(object_store: tuple[type[Bucket], Neighbour], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of each object store; Airflow has a connection to it."""
    kind, running = object_store
    created = kind(running, uuid.uuid4().hex)
    monkeypatch.setenv(f"AIRFLOW_CONN_STORE_{kind.scheme.upper()}", json.dumps(created.connection()))
    yield created
    running.program.thaw()
