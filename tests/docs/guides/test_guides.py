"""The code of every guide runs and does what the page says: complete DAGs unchanged, other blocks in a minimal frame."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import OutcomeUnknownError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator
from tests.dag_runs import run_dag, succeed
from tests.doc_blocks import ROOT, code_of, dag_of, for_this_airflow
from tests.support import HAS_RETRY_POLICIES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time

FRAME = """\
from datetime import datetime
from airflow.sdk import DAG, task
from airflow_provider_cloudstore.operators.cloudstore import *

with DAG("block", schedule=None, start_date=datetime(2026, 1, 1), params={"sha256": ""}) as dag:
"""


def inside_a_dag(code: str, before: str = "") -> str:
    """A DAG file that contains the code of a block."""
    return FRAME + textwrap.indent(before + code, "    ")


def test_upload_wait_hand_on(emulator: Emulator) -> None:
    run = succeed(dag_of("upload-and-share.md-0"), {"source_url": emulator.serve(b"x" * 1000)})
    assert run.values["download"] == 1000


def test_many_files_are_shared(emulator: Emulator) -> None:
    urls = [emulator.serve(str(number).encode(), f"part-{number}.csv") for number in range(3)]
    run = succeed(dag_of("upload-and-share.md-1", inside_a_dag(code_of("upload-and-share.md-1"), f"urls = {urls}\n")))
    tokens = {token["token"] for token in emulator.state()["tokens"]}
    assert {run.values[f"link[{number}]"] for number in range(3)} <= tokens


def test_both_ways_to_wait_wait_on_the_worker_and_in_the_triggerer(emulator: Emulator) -> None:
    emulator.put_file(b"x", "f123")
    run = run_dag(dag_of("wait.md-0", inside_a_dag(code_of("wait.md-0"))))
    assert run.tasks == {"file_available": "success", "link": "success"}, str(run)


def test_a_download_waits_for_the_file_and_returns_its_path(emulator: Emulator, tmp_path: Path) -> None:
    code = code_of("download.md-0").replace("s3://aws_default@bucket/incoming", str(tmp_path))
    before = f"upload = RemoteUrlUploadOperator(task_id='upload', url={emulator.serve(b'hello')!r})\n"
    run = succeed(dag_of("download.md-0", inside_a_dag(code, before)))
    assert Path(run.values["download"]["path"]).read_text() == "hello"


def test_after_the_lost_response_of_the_emulators_page_an_upload_is_unknown(emulator: Emulator) -> None:
    exec(code_of("emulator.md-0"), {"cloudstore_emulator": emulator})
    with CloudStoreHook() as hook, pytest.raises(OutcomeUnknownError):
        hook.upload_from_url("http://127.0.0.1:9/a.csv")
    assert emulator.state()["effects"] == {"upload": 1}


def test_any_other_call(emulator: Emulator) -> None:
    succeed(dag_of("any-other-call.md-0"), {"file_id": emulator.put_file(b"x", "f1"), "name": "new.csv"})
    assert emulator.call(lambda service: service.store.files["f1"].name) == "new.csv"


def test_the_policy_of_the_page_is_that_of_a_task() -> None:
    if not HAS_RETRY_POLICIES:
        pytest.skip("this Airflow has no retry policies: they came with 3.3")
    names: dict[str, Any] = {}
    exec(code_of("retries.md-0"), names)
    task = DeleteFolderOperator(task_id="delete", folder_id="f1", **names["default_args"])
    assert type(task.retry_policy).__name__ == "CloudStoreRetryPolicy"


@pytest.mark.parametrize(
    ("refused", "tasks"),
    [
        ("link", {"upload": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("download", {"use": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("delete", {"use": "success", "clean_up": "failed"}),
        ("other", {"create_folder": "failed", "clean_up": "upstream_failed"}),
        ("", {"use": "success", "clean_up": "success", "finished": "success"}),
    ],
)
def test_stage_use_clean_up_fails_if_anything_failed_and_deletes_the_runs_own_folder(
    emulator: Emulator, refused: str, tasks: dict[str, str]
) -> None:
    if refused:
        emulator.fault("status", status=400, operation=refused, times=0)
    emulator.put_file(b"of another DAG", "theirs")
    run = run_dag(dag_of("stage-and-clean-up.md-0"), {"source_url": emulator.serve(b"x" * 1000)})
    assert (run.state, run.tasks) == ("failed" if refused else "success", run.tasks | tasks)
    assert run.values["use"] == (1000 if tasks.get("use") == "success" else None)
    state = emulator.state()
    assert ("delete" in state["requests"]) == (refused != "other")
    assert ([one["file_id"] for one in state["files"]] == ["theirs"]) == (refused != "delete")
    assert (state["folders"] == ["staging"]) == (refused != "delete")


@pytest.mark.parametrize("cloudstore_emulator", ["yetishare"], indirect=True)
@pytest.mark.parametrize(
    ("refused", "tasks"),
    [
        ("other", {"create_folder": "failed", "clean_up": "upstream_failed"}),
        ("link", {"use": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("delete", {"use": "success", "clean_up": "failed", "finished": "upstream_failed"}),
        ("", {"use": "success", "clean_up": "success", "finished": "success"}),
    ],
)
def test_so_does_a_run_on_a_yetishare_site(emulator: Emulator, refused: str, tasks: dict[str, str]) -> None:
    if refused:
        emulator.fault("status", status=400, operation=refused, times=0)
    emulator.put_file(b"of another run", "other", "theirs")
    urls = [emulator.serve(b"x" * number, f"{number}.csv") for number in (1, 10, 100)]
    file = ROOT / "docs" / "guides" / "stage_on_yetishare.py"
    run = run_dag(dag_of(file.stem, file.read_text()), {"source_urls": urls})
    assert (run.state, run.tasks) == ("failed" if refused else "success", run.tasks | tasks), str(run)
    assert run.values["use"] == (111 if tasks.get("use") == "success" else None)
    state = emulator.state()
    assert "theirs" in state["folders"]
    assert (state["folders"] == ["theirs"]) == (refused != "delete")


def test_many_uploads(emulator: Emulator, tmp_path: Path) -> None:
    manifest = tmp_path / "urls.csv"
    manifest.write_text("url\n" + "".join(f"{emulator.serve(b'x', str(number))}\n" for number in range(5)))
    run = succeed(dag_of("many-uploads.md-0"), {"manifest": str(manifest), "receipts": str(tmp_path / "receipts")})
    assert run.values["upload"]["queued"] == 5


def test_the_results_of_a_batch_are_a_manifest_of_failed_lines_and_a_link_for_each_file(
    emulator: Emulator, tmp_path: Path
) -> None:
    urls = [emulator.serve(b"x", "first"), "not a URL", "https:///no-host?sig=secret", emulator.serve(b"x", "second")]
    manifest = tmp_path / "urls.csv"
    manifest.write_text("name,url\n" + "".join(f"file {number},{url}\n" for number, url in enumerate(urls)))
    params = {"manifest": str(manifest), "receipts": str(tmp_path / "receipts")}
    run = run_dag(dag_of("many-uploads.md-1", code_of("many-uploads.md-0") + code_of("many-uploads.md-1")), params)
    assert (run.tasks["upload"], run.tasks["failed_urls"]) == ("failed", "success"), str(run)
    (failed,) = (tmp_path / "receipts").glob("*-failed.csv")
    assert failed.read_text() == f"name,url\nfile 1,{urls[1]}\nfile 2,{urls[2]}\n"
    assert run.values["failed_urls"] == 2
    assert [run.tasks[f"link[{number}]"] for number in range(len(run.values["file_ids"]))] == ["success"] * 2, str(run)


def test_the_samples_of_test_your_dag_pass_from_an_empty_folder(tmp_path: Path) -> None:
    dag, conftest, test, mocks = map(
        code_of, ["test-your-dag.md-0", "test-your-dag.md-1", "test-your-dag.md-2", "test-your-dag.md-3"]
    )
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "share.py").write_text(for_this_airflow(dag))
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_share.py").write_text(test)
    (tmp_path / "test_with_mocks.py").write_text(mocks)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout[-5000:] + done.stderr
