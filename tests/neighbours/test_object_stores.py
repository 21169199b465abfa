"""A batch's manifest and receipts in object stores that people really use, through Airflow's ``ObjectStoragePath``.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dags import operator_dags as dags
from tests.neighbours.servers import S3, Azurite
from tests.support import run_dag

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(30)]
MANIFEST = "\n".join(["id,link", *(f"{number},{url}" for number, url in enumerate(URLS))]).encode()
REGION = "us-east-1"


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


def assert_all_is_queued_and_told(emulator: Emulator, summary: dict[str, Any], parts: list[bytes]) -> None:
    assert (summary["total"], summary["queued"]) == (len(URLS), len(URLS))
    assert sorted(stored["source"] for stored in emulator.state()["files"]) == sorted(URLS)
    told = [json.loads(line) for part in parts for line in part.decode().splitlines()]
    assert [receipt["position"] for receipt in sorted(told, key=lambda one: one["position"])] == list(range(len(URLS)))
    assert b"hunter" not in b"".join(parts)


def test_s3(emulator: Emulator, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    login = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    client: Any = boto3.client("s3", endpoint_url=s3.url, region_name=REGION, **login)
    client.create_bucket(Bucket="staging")
    client.put_object(Bucket="staging", Key="urls.csv", Body=MANIFEST)
    client.put_object(Bucket="staging", Key="receipts/.keep")  # a store has no empty folders
    extra = {"endpoint_url": s3.url, "region_name": REGION}
    connection = {"conn_type": "aws", "login": "testing", "password": "testing", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    summary = run_batch("s3://store@staging/urls.csv", "s3://store@staging/receipts")
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="staging", Prefix="receipts/part-")["Contents"]]
    parts = [client.get_object(Bucket="staging", Key=key)["Body"].read() for key in keys]
    assert_all_is_queued_and_told(emulator, summary, parts)


def test_azure_blob(emulator: Emulator, azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.storage.blob import BlobServiceClient

    connection = {"conn_type": "adls", "extra": {"connection_string": azurite.connection_string}}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))
    with BlobServiceClient.from_connection_string(azurite.connection_string) as client:
        container = client.create_container("staging")
        container.upload_blob("urls.csv", MANIFEST)
        container.upload_blob("receipts/.keep", b"")  # a store has no empty folders
        summary = run_batch("abfs://store@staging/urls.csv", "abfs://store@staging/receipts")
        names = [blob.name for blob in container.list_blobs(name_starts_with="receipts/part-")]
        parts = [container.download_blob(name).readall() for name in names]
    assert_all_is_queued_and_told(emulator, summary, parts)
