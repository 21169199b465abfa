from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator
from tests.dag_runs import run_dag as run_and_tell
from tests.dags import download_dags as dags
from tests.support import rendered_fields

DATA = os.urandom(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()

Download = Callable[[Path], Any]


def whole(folder: Path) -> Any:
    return CloudStoreHook().download("f1", folder / "f")


def block(folder: Path) -> Any:
    return CloudStoreHook().open_file("f1").read(0, 10)


@pytest.mark.usefixtures("airflow_db")
def test_a_file_is_downloaded_once_it_is_there_and_no_link_is_stored(emulator: Emulator, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "f"
    run = run_and_tell(dags.download, {"source": emulator.serve(DATA), "target": str(target), "sha256": SHA256})
    assert run.state == "success", run
    file_id = emulator.state()["files"][0]["file_id"]
    assert run.values["download"] == {"file_id": file_id, "path": str(target), "bytes": len(DATA), "sha256": SHA256}
    assert run.values["use"] == len(DATA)
    assert target.read_bytes() == DATA
    (token,) = {token["token"] for token in emulator.state()["tokens"]}
    assert token not in f"{run} {rendered_fields('download_file', 'download')} {rendered_fields('download_file', 'use')}"


@pytest.mark.parametrize("target", ["s3://KEY:hunter2@bucket/x", "{{ 's3://KEY:' ~ 'hunter2' }}@bucket/x"])
def test_a_target_with_credentials_is_refused_and_rendered_without_them(emulator: Emulator, target: str) -> None:
    emulator.put_file(DATA, "f1")
    operator = DownloadFileOperator(task_id="t", file_id="f1", target=target)
    for _ in range(2):  # a sensor's or a deferred task's fields are rendered again
        operator.render_template_fields({})
        assert operator.target == "s3://***:***@bucket/x"
    with pytest.raises(AirflowFailException, match="target holds a user and a password") as refused:
        operator.execute({})
    assert "hunter2" not in str(refused.value)
    assert emulator.state()["requests"] == {}


@pytest.mark.usefixtures("airflow_db")
def test_a_deferred_wait_ends_in_the_same_download(emulator: Emulator, tmp_path: Path) -> None:
    emulator.put_file(DATA, "f1")
    operator = DownloadFileOperator(task_id="t", file_id="f1", target=str(tmp_path / "f"), wait_for_file=True, deferrable=True)
    assert operator.execute_complete({}, {"status": "available"})["sha256"] == SHA256
    assert emulator.state()["requests"] == {"link": 1, "download": 1}


@pytest.mark.parametrize("target", [None, "", "None", "{{ x }}", 1.5, "file://[b/f", "/tmp"])
def test_a_target_that_names_no_file_is_refused_before_anything_is_sent(emulator: Emulator, target: Any) -> None:
    with pytest.raises(exceptions.InvalidInputError, match="target") as refused:
        CloudStoreHook().download("f1", target)
    assert isinstance(refused.value, AirflowFailException)
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("target", ["nosuch://x/y", "s3://aws_default@bucket/key"])
@pytest.mark.parametrize("wait_for_file", [False, True])
def test_a_target_whose_scheme_nothing_provides_is_permanent_and_creates_no_link(
    emulator: Emulator, target: str, wait_for_file: bool
) -> None:
    emulator.put_file(DATA, "f1")
    operator = DownloadFileOperator(task_id="t", file_id="f1", target=target, wait_for_file=wait_for_file)
    with pytest.raises(exceptions.InvalidInputError, match="install the Airflow provider") as refused:
        operator.execute({})
    assert isinstance(refused.value, AirflowFailException)
    assert emulator.state()["requests"] == {}


def test_a_service_that_gives_no_url_needs_the_extra(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emulator.put_file(DATA, "f1")
    token = emulator.call(lambda service: service.store.create_token("f1"))
    assert token
    emulator.fault("status", operation="link", times=0, status=200, body=json.dumps({"download_token": token.token}))
    with pytest.raises(exceptions.ConfigurationError, match="Set extra 'download_url'"):
        CloudStoreHook().download("f1", tmp_path / "f")
    connection = json.loads(emulator.connection)
    connection["extra"] = {"download_url": f"{emulator.url}/download?download_token={{token}}"}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    assert CloudStoreHook().download("f1", tmp_path / "f").sha256 == SHA256


@pytest.mark.parametrize("read", [whole, block])
@pytest.mark.parametrize(("execution_timeout", "seconds"), [(math.inf, 80_000), (math.inf, 301), (60, 59)])
def test_a_pause_that_does_not_fit_ends_the_download_and_the_read_of_a_block(
    emulator: Emulator, tmp_path: Path, alarm: Callable[[float], None], read: Download, execution_timeout: float, seconds: int
) -> None:
    emulator.put_file(DATA, "f1")
    emulator.fault("status", operation="download", status=429, headers={"Retry-After": str(seconds)}, times=0)
    if execution_timeout < math.inf:
        alarm(execution_timeout)
    with pytest.raises(exceptions.RateLimitError) as failed:
        read(tmp_path)
    assert failed.value.retry_after == seconds
    assert emulator.state()["requests"] == {"link": 1, "download": 1}
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("airflow_db")
def test_a_part_is_named_by_its_try_in_operators_and_taskflow_code_alike(emulator: Emulator, tmp_path: Path) -> None:
    emulator.put_file(DATA, "f1")
    run = run_and_tell(dags.parts, {"folder": str(tmp_path)})
    assert run.state == "success", run
    ((of_operator,), (of_taskflow,)) = run.values["operator"], run.values["taskflow"]
    assert re.fullmatch(r"\.f1\.[0-9a-f]{12}-1\.part", of_operator)
    assert re.fullmatch(r"\.f1\.[0-9a-f]{12}-1\.part", of_taskflow)
    assert of_operator != of_taskflow
    assert {one.name for one in tmp_path.rglob("*")} == {"operator", "taskflow", "f1"}
