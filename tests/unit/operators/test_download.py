from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowFailException
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator
from tests.dag_runs import succeed
from tests.dags import download_dags as dags
from tests.support import rendered_fields

DATA = os.urandom(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.mark.usefixtures("airflow_db")
def test_a_file_is_downloaded_once_it_is_there_and_no_link_is_stored(emulator: Emulator, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "f"
    run = succeed(dags.download, {"source": emulator.serve(DATA), "target": str(target), "sha256": SHA256})
    file_id = emulator.state()["files"][0]["file_id"]
    assert run.values["download"] == {"file_id": file_id, "path": str(target), "name": None, "bytes": len(DATA), "sha256": SHA256}
    assert run.values["use"] == len(DATA)
    assert target.read_bytes() == DATA
    shown = f"{run.values} {rendered_fields('download_file', 'download')} {rendered_fields('download_file', 'use')}"
    assert not [token["token"] for token in emulator.state()["tokens"] if token["token"] in shown]


NO_FILES: list[Any] = [
    None, "", "None", "{{ x }}", 1.5, "True", "{'a': 1}", Path("/data/{{ params.name }}"), "file://[b/f", "/tmp",
    "nosuch://x/y", "s3://my_conn@bucket/key", "s3://KEY:hunter2@bucket/x",
]  # fmt: skip
REFUSED = [({"target": target}, "target.*nothing was sent") for target in NO_FILES]
REFUSED += [({"target": "x", "expected_sha256": "abc"}, "expected_sha256 must be 64 hexadecimal digits")]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=str)
def test_what_names_no_file_or_is_no_checksum_is_refused_before_a_wait_and_costs_no_retry(
    emulator: Emulator, arguments: dict[str, Any], words: str
) -> None:
    operator = DownloadFileOperator(task_id="t", file_id="f1", wait_for_file=True, timeout=0.1, **arguments)
    with pytest.raises(exceptions.InvalidInputError, match=words) as refused:
        operator.execute({})
    assert isinstance(refused.value, AirflowFailException)
    assert "hunter2" not in str(refused.value)
    assert emulator.state()["requests"] == {}


def test_a_download_does_not_pause_for_more_than_five_minutes(emulator: Emulator, tmp_path: Path) -> None:
    emulator.put_file(DATA, "f1")
    emulator.fault("status", operation="download", status=429, headers={"Retry-After": "301"}, times=0)
    with pytest.raises(exceptions.RateLimitError):
        CloudStoreHook().download("f1", tmp_path / "f")
    assert emulator.state()["requests"] == {"link": 1, "download": 1}
    assert [*tmp_path.iterdir()] == []
