"""Real neighbours as fixtures; a test is skipped, with the reason, where the program is not on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.wire.neighbours.buckets import FIRST, AzureContainer, Bucket, S3Bucket
from tests.wire.neighbours.gateway import Gateway
from tests.wire.neighbours.servers import S3, Azurite, Missing


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator whose uploads stay queued; Airflow's connection leads there."""
    with Emulator(fetch_delay=3600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


@pytest.fixture
def run_neighbour() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a neighbour until the end of the test: ``run_neighbour(lambda: Nginx(config))``."""
    with ExitStack() as stack:

        def run(make: Callable[[], Any]) -> Any:
            try:
                return stack.enter_context(make())
            except Missing as missing:
                pytest.skip(str(missing))

        yield run


@dataclass
class Store:
    """A bucket behind a gateway.

    :param bucket: the bucket.
    :param gateway: counts the requests, and can refuse the credentials.
    :param root: its URL, without a bucket.
    """

    bucket: Bucket
    gateway: Gateway
    root: str


@pytest.fixture(params=["s3", "azure"])
def store(
    request: pytest.FixtureRequest, run_neighbour: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """Each object store, with a connection of its own: Airflow keeps a connection's filesystem for as long as it runs."""
    bucket: Bucket = S3Bucket(run_neighbour(S3)) if request.param == "s3" else AzureContainer(run_neighbour(Azurite))
    with Gateway(bucket.port, bucket.refusal) as gateway:
        conn_id = f"store_{request.param}_{gateway.port}"
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(bucket.connection(gateway.url, FIRST)))
        yield Store(bucket, gateway, f"{bucket.scheme}://{conn_id}@")
