"""A batch's manifest and receipts in object stores that people really use, through Airflow's ``ObjectStoragePath``.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import job as job_module
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.protocol import errors
from tests.dags import batch_dags as dags
from tests.neighbours.gateway import Gateway
from tests.neighbours.servers import S3, Azurite
from tests.support import eventually, run_dag

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(30)]
MANIFEST = "\n".join(["id,link", *(f"{number},{url}" for number, url in enumerate(URLS))]).encode()
REGION = "us-east-1"
LOGIN = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
MANY = [f"https://source.example/{number}?sig=hunter{number}" for number in range(2_000)]
RATE, CONCURRENCY = 200, 8


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator whose uploads stay queued."""
    with Emulator(fetch_delay=3600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


def run_batch(manifest: str, receipts: str) -> dict[str, Any]:
    state, _, values = run_dag(dags.batch, {"urls": manifest, "receipts": receipts})
    assert state == "success"
    return dict(values["batch"])


def assert_another_run_sends_its_own(emulator: Emulator, manifest: str, receipts: str) -> None:
    """Receipts belong to one DAG run, also where two have the same folder."""
    summary = run_batch(manifest, receipts)
    assert (summary["queued"], summary["queued_earlier"]) == (len(URLS), 0)
    assert emulator.state()["requests"] == {"upload": 2 * len(URLS)}


def assert_is_refused(emulator: Emulator, manifest: str, receipts: str) -> None:
    before = emulator.state()["requests"]
    assert run_dag(dags.batch, {"urls": manifest, "receipts": receipts})[0] == "failed"
    assert emulator.state()["requests"] == before


def assert_all_is_queued_and_told(emulator: Emulator, summary: dict[str, Any], parts: list[bytes]) -> None:
    assert (summary["total"], summary["queued"]) == (len(URLS), len(URLS))
    assert sorted(stored["source"] for stored in emulator.state()["files"]) == sorted(URLS)
    reported = [json.loads(line) for part in parts for line in part.decode().splitlines()]
    assert [receipt["position"] for receipt in sorted(reported, key=lambda one: one["position"])] == list(range(len(URLS)))
    assert b"hunter" not in b"".join(parts)


def test_s3(emulator: Emulator, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    client: Any = boto3.client("s3", endpoint_url=s3.url, region_name=REGION, **LOGIN)
    client.create_bucket(Bucket="staging")
    client.put_object(Bucket="staging", Key="urls.csv", Body=MANIFEST)
    extra = {"endpoint_url": s3.url, "region_name": REGION}
    connection = {"conn_type": "aws", "login": "testing", "password": "testing", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    summary = run_batch("s3://store@staging/urls.csv", "s3://store@staging/receipts")  # a prefix that does not exist yet
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="staging", Prefix="receipts/part-")["Contents"]]
    parts = [client.get_object(Bucket="staging", Key=key)["Body"].read() for key in keys]
    assert_all_is_queued_and_told(emulator, summary, parts)
    assert_another_run_sends_its_own(emulator, "s3://store@staging/urls.csv", "s3://store@staging/receipts")
    assert_is_refused(emulator, "s3://store@staging/urls.csv", "s3://store@missing/receipts")
    assert [one["Name"] for one in client.list_buckets()["Buckets"]] == ["staging"]
    for manifest in ("s3://store@staging/receipts", "s3://store@staging/missing.csv", "s3://store@missing/urls.csv"):
        assert_is_refused(emulator, manifest, "s3://store@staging/others")


def test_azure_blob(emulator: Emulator, azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.storage.blob import BlobServiceClient

    connection = {"conn_type": "adls", "extra": {"connection_string": azurite.connection_string}}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    with BlobServiceClient.from_connection_string(azurite.connection_string) as client:
        container = client.create_container("staging")
        container.upload_blob("urls.csv", MANIFEST)
        summary = run_batch("abfs://store@staging/urls.csv", "abfs://store@staging/receipts")
        names = [blob.name for blob in container.list_blobs(name_starts_with="receipts/part-")]
        parts = [container.download_blob(name).readall() for name in names]
        assert_all_is_queued_and_told(emulator, summary, parts)
        assert_another_run_sends_its_own(emulator, "abfs://store@staging/urls.csv", "abfs://store@staging/receipts")
        assert_is_refused(emulator, "abfs://store@staging/urls.csv", "abfs://store@missing/receipts")
        assert [one.name for one in client.list_containers()] == ["staging"]
        for manifest in ("abfs://store@staging/receipts", "abfs://store@staging/missing.csv", "abfs://store@missing/urls.csv"):
            assert_is_refused(emulator, manifest, "abfs://store@staging/others")


class Away:
    """A way in which a store is away, and back."""

    def __init__(self, gateway: Gateway, s3: S3, how: str) -> None:
        self.begin, self.end = {
            "frozen": (s3.freeze, s3.thaw),
            "refused": (gateway.close, gateway.open),
            "expired": (lambda: setattr(gateway, "expired", True), lambda: setattr(gateway, "expired", False)),
        }[how]


@pytest.fixture
def gateway(s3: S3) -> Iterator[Gateway]:
    """A gateway before the S3."""
    with Gateway(s3.port) as running:
        yield running


@pytest.fixture
def send(gateway: Gateway, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Run one try of a large batch, whose receipts go through the gateway."""
    import boto3

    client: Any = boto3.client("s3", endpoint_url=s3.url, region_name=REGION, **LOGIN)
    client.create_bucket(Bucket="staging")
    conn_id = f"store_{gateway.port}"  # Airflow keeps the filesystem of a connection for as long as the process lives
    connection = {"conn_type": "aws", "login": "testing", "password": "testing"}
    extra = {"endpoint_url": gateway.url, "region_name": REGION}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({**connection, "extra": extra}))

    def run(number: int) -> Any:
        ti = SimpleNamespace(
            dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=number, max_tries=9, xcom_push=lambda **_: None
        )
        operator = RemoteUrlBatchUploadOperator(
            task_id="t",
            urls=MANY,
            receipts=f"s3://{conn_id}@staging/receipts",
            requests_per_second=RATE,
            max_concurrency=CONCURRENCY,
            retries=9,
        )
        return operator.execute({"ti": ti})  # type: ignore[typeddict-item]

    return run


def uploads(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def receipts_of(s3: S3) -> list[dict[str, Any]]:
    import boto3

    client: Any = boto3.client("s3", endpoint_url=s3.url, region_name=REGION, **LOGIN)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="staging", Prefix="receipts/part-")
    keys = [one["Key"] for page in pages for one in page.get("Contents", ())]
    parts = (client.get_object(Bucket="staging", Key=key)["Body"].read() for key in keys)
    return [json.loads(line) for part in parts for line in part.decode().splitlines()]


@pytest.mark.parametrize("how", ["frozen", "refused", "expired"])
def test_a_batch_pauses_while_its_object_store_is_away_and_goes_on(
    emulator: Emulator, gateway: Gateway, s3: S3, send: Callable[[int], Any], how: str
) -> None:
    store, sent = Away(gateway, s3, how), []

    def interrupt() -> None:
        eventually(lambda: uploads(emulator) > 300, 60)
        store.begin()
        sent.append(uploads(emulator))
        time.sleep(6)  # longer than the lease
        sent.append(uploads(emulator))
        time.sleep(4)
        sent.append(uploads(emulator))
        store.end()

    interruption = threading.Thread(target=interrupt)
    interruption.start()
    summary = send(1)
    interruption.join()
    before, paused, still = sent
    print(f"{how}: {paused - before} sent after the store went away (at most {CONCURRENCY + 2 * RATE}), {still - paused} later")
    assert (summary["total"], summary["queued"]) == (len(MANY), len(MANY))
    assert uploads(emulator) == len(MANY)
    assert paused - before <= CONCURRENCY + 2 * RATE
    assert still == paused < len(MANY)
    assert sorted(receipt["position"] for receipt in receipts_of(s3)) == list(range(len(MANY)))
    assert gateway.refused > 0 if how == "expired" else gateway.refused == 0


@pytest.mark.parametrize("how", ["frozen", "refused", "expired"])
def test_a_batch_whose_object_store_stays_away_ends_so_that_a_retry_resumes(
    emulator: Emulator, gateway: Gateway, s3: S3, send: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(job_module, "OUTAGE_LIMIT", 5.0)
    store = Away(gateway, s3, how)

    def interrupt() -> None:
        eventually(lambda: uploads(emulator) > 300, 60)
        store.begin()

    interruption = threading.Thread(target=interrupt)
    interruption.start()
    with pytest.raises(errors.BatchStoreError, match="receipts folder cannot be written: retried for 5 s") as ended:
        send(1)
    interruption.join()
    assert not ended.value.permanent
    sent = uploads(emulator)
    assert 300 < sent < len(MANY)
    store.end()
    monkeypatch.setattr(job_module, "OUTAGE_LIMIT", 120.0)
    summary = send(2)
    twice = uploads(emulator) - len(MANY)
    print(f"{how}: {sent} sent by the first try, {twice} of them again by the second one (at most {CONCURRENCY + 2 * RATE})")
    assert (summary["total"], summary["queued"]) == (len(MANY), len(MANY))
    assert 0 <= twice <= CONCURRENCY + 2 * RATE
    assert {stored["source"] for stored in emulator.state()["files"]} == set(MANY)
    assert {receipt["position"] for receipt in receipts_of(s3)} == set(range(len(MANY)))
