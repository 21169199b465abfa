"""The incomplete blocks of README and docs run with a minimal frame."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import OutcomeUnknownError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.dag_runs import run_dag, succeed
from tests.doc_blocks import code_of, dag_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time

IMPORTS = """\
from datetime import datetime
from airflow.sdk import DAG, task
from airflow_provider_cloudstore.operators.cloudstore import *

"""


def inside_a_dag(name: str, before: str = "") -> str:
    """A DAG file that contains the block ``name``."""
    dag = 'with DAG("block", schedule=None, start_date=datetime(2026, 1, 1)) as dag:\n'
    return IMPORTS + dag + textwrap.indent(before + code_of(name), "    ")


def test_after_the_lost_response_of_the_emulators_page_an_upload_is_unknown(emulator: Emulator) -> None:
    exec(code_of("emulator.md-0"), {"cloudstore_emulator": emulator})
    with CloudStoreHook() as hook, pytest.raises(OutcomeUnknownError):
        hook.upload_from_url("http://127.0.0.1:9/a.csv")
    assert emulator.state()["effects"] == {"upload": 1}


def test_both_ways_to_wait_wait_on_the_worker_and_in_the_triggerer(emulator: Emulator) -> None:
    emulator.put_file(b"x", "f123")
    run = run_dag(dag_of("wait.md-0", inside_a_dag("wait.md-0")))
    assert run.tasks == {"file_available": "success", "link": "success"}, str(run)


def test_many_files_are_shared(emulator: Emulator) -> None:
    urls = [emulator.serve(str(number).encode(), f"part-{number}.csv") for number in range(3)]
    run = succeed(dag_of("upload-and-share.md-1", inside_a_dag("upload-and-share.md-1", f"urls = {urls}\n")))
    tokens = {token["token"] for token in emulator.state()["tokens"]}
    assert {run.values[f"link[{number}]"] for number in range(3)} <= tokens


def test_a_download_waits_for_the_file_and_returns_its_path(emulator: Emulator, tmp_path: Path) -> None:
    code = code_of("download.md-0").replace("s3://aws_default@bucket/incoming", str(tmp_path))
    before = f"upload = RemoteUrlUploadOperator(task_id='upload', url={emulator.serve(b'hello')!r})\n"
    head = IMPORTS + 'with DAG("block", schedule=None, start_date=datetime(2026, 1, 1), params={"sha256": ""}) as dag:\n'
    run = succeed(dag_of("download.md-0", head + textwrap.indent(before + code, "    ")))
    assert Path(run.values["download"]["path"]).read_text() == "hello"
