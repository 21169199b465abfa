"""Downloads to an object store, and Airflow's own transfer there, with moto's S3.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator
from tests.wire.neighbours.buckets import FIRST, NAME, S3Bucket
from tests.wire.neighbours.servers import S3

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture
def s3(run_neighbour: Callable[[Callable[[], S3]], S3]) -> S3:
    return run_neighbour(S3)


@pytest.fixture
def root(s3: S3) -> str:
    """The bucket, with a connection of its own in each test: Airflow keeps a connection's filesystem for as long as it runs."""
    return f"s3://s3_{s3.port}@{NAME}"


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the bucket."""
    created = S3Bucket(s3)
    monkeypatch.setenv(f"AIRFLOW_CONN_S3_{s3.port}", json.dumps(created.connection(s3.url, FIRST)))
    return created.client


def keys(client: Any) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket=NAME).get("Contents", [])]


def uploads(client: Any) -> list[Any]:
    return list(client.list_multipart_uploads(Bucket=NAME).get("Uploads", []))


@pytest.mark.parametrize("size", [0, 1000, 12 * MIB])
def test_a_download_through_lost_connections_is_one_whole_object(emulator: Emulator, bucket: Any, root: str, size: int) -> None:
    data = os.urandom(size)
    emulator.put_file(data, "f1")
    if size > MIB:
        for after in (7 * MIB, MIB, 1):
            emulator.fault("drop_body", operation="download", after=after)
    target = f"{root}/folder/{size}"
    found = DownloadFileOperator(task_id="t", file_id="f1", target=target).execute({})
    assert (found["path"], found["bytes"]) == (target, size)
    assert bucket.get_object(Bucket=NAME, Key=f"folder/{size}")["Body"].read() == data
    assert ObjectStoragePath(found["path"]).read_bytes() == data
    assert uploads(bucket) == []


@pytest.mark.parametrize("file_id", ["../../x", "a/b", "C:\\x", "a?versionId=1", "文", "~"])
def test_a_folder_on_s3_gets_the_id_as_one_name_in_it(emulator: Emulator, bucket: Any, root: str, file_id: str) -> None:
    emulator.put_file(b"new", file_id)
    path = CloudStoreHook().download(file_id, f"{root}/in/").path
    assert keys(bucket) == [path.removeprefix(f"{root}/")]
    assert keys(bucket)[0].count("/") == 1
    assert ObjectStoragePath(path).read_bytes() == b"new"


@pytest.mark.parametrize("size", [1000, 12 * MIB])
def test_a_download_that_fails_leaves_no_object_and_no_upload(emulator: Emulator, bucket: Any, root: str, size: int) -> None:
    emulator.put_file(os.urandom(size), "f1")
    bucket.put_object(Bucket=NAME, Key="old", Body=b"old")
    for target in (f"{root}/new", f"{root}/old"):
        with pytest.raises(exceptions.ChecksumError):
            CloudStoreHook().download("f1", target, expected_sha256="0" * 64)
    assert keys(bucket) == ["old"]
    assert bucket.get_object(Bucket=NAME, Key="old")["Body"].read() == b"old"
    assert uploads(bucket) == []


def test_a_file_that_is_replaced_in_the_middle_is_uploaded_from_its_start(
    emulator: Emulator, bucket: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(12 * MIB)
    emulator.put_file(data[::-1], "f1")
    emulator.fault("drop_body", operation="download", after=7 * MIB)
    hook = CloudStoreHook()

    def replace_file(line: str) -> None:  # told of the lost connection
        emulator.put_file(data, "f1")

    monkeypatch.setattr(hook.log, "warning", replace_file)
    hook.download("f1", f"{root}/f")
    assert bucket.get_object(Bucket=NAME, Key="f")["Body"].read() == data
    assert uploads(bucket) == []


def test_airflows_own_transfer_copies_a_file_to_s3(emulator: Emulator, bucket: Any, root: str) -> None:
    data = os.urandom(12 * MIB)
    emulator.put_file(data, "f1")
    source, target = "cloudstore://cloudstore_default@/f1", f"{root}/copy"
    FileTransferOperator(task_id="t", src=source, dst=target).execute({})
    assert bucket.get_object(Bucket=NAME, Key="copy")["Body"].read() == data
