"""The DAG of every guide runs unchanged and does what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES, BaseOperator
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag, succeed
from tests.doc_blocks import code_of, dag_of, for_this_airflow
from tests.real_airflow import AIRFLOW_2
from tests.support import rendered_fields

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time


def test_nightly_cleanup(emulator: Emulator) -> None:
    dag = dag_of("stage-and-clean-up.md-2")
    emulator.make_folder("exports-2026-03-01")
    for day in (8, 9):
        run = succeed(dag, logical_date=datetime(2026, 3, day, tzinfo=UTC))
        assert [run.values[f"delete[{index}]"]["existed"] for index in (0, 1)] == [day == 8, False]
    assert emulator.state()["effects"] == {"delete": 1}


def test_nightly_cleanup_triggered_by_hand_without_a_logical_date(emulator: Emulator) -> None:
    emulator.make_folder(f"exports-{datetime.now(UTC) - timedelta(days=7):%Y-%m-%d}")
    run = dag_of("stage-and-clean-up.md-2").test(**({"logical_date": None} if not AIRFLOW_2 else {}))
    assert str(run.state) == "success"
    assert emulator.state()["effects"] == {"delete": 1}


def test_upload_wait_hand_on(emulator: Emulator) -> None:
    run = succeed(dag_of("upload-and-share.md-0"), {"source_url": emulator.serve(b"x" * 1000)})
    assert run.values["download"] == 1000


def test_any_other_call(emulator: Emulator) -> None:
    params = {"file_id": emulator.put_file(b"x", "f1"), "folder": "staging", "name": "new.csv"}
    run = succeed(dag_of("any-other-call.md-0"), params)
    assert run.values["list_folder"] == [{"file_id": "f1", "name": "new.csv"}]


def test_an_alert_says_what_happened_and_what_to_do(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    if not HAS_RETRY_POLICIES:
        pytest.skip("this Airflow has no retry policies: they came with 3.3")
    code = (
        code_of("alerts-and-retries.md-0")
        + """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator

with DAG("alerts", schedule=None, start_date=datetime(2026, 1, 1), default_args=default_args) as dag:
    DeleteFolderOperator(task_id="delete", folder_id="nowhere", retries=0)
"""
    )
    assert run_dag(dag_of("alerts-and-retries.md-0", code)).state == "failed"
    assert "delete folder 'nowhere': HTTP 404: Could not find the folder" in capsys.readouterr().out


def test_many_calls_in_one_task(emulator: Emulator) -> None:
    if AIRFLOW_2 or not hasattr(BaseOperator, "is_async"):
        pytest.skip("this Airflow runs no coroutines as tasks: since 3.2")
    ids = [emulator.put_file(b"x", f"f{number}") for number in range(30)]
    run = succeed(dag_of("many-calls.md-0"), {"file_ids": [*ids, "gone"]})
    assert run.values["missing"] == ["gone"]


@pytest.mark.parametrize(
    ("refused", "tasks"),
    [
        ("link", {"wait": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("download", {"use": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("delete", {"use": "success", "clean_up": "failed"}),
        ("upload", {"upload": "failed", "clean_up": "success", "finished": "upstream_failed"}),
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


def test_one_task_collects_the_links_of_mapped_uploads_before_the_folder_is_deleted(emulator: Emulator) -> None:
    urls = [emulator.serve(b"x", str(number)) for number in range(3)]
    run = succeed(dag_of("stage-and-clean-up.md-1"), {"source_urls": urls})
    assert run.values["use_all"] == 3
    effects = emulator.state()["effects"]
    assert (effects["upload"], effects["link"] >= 6, effects["delete"]) == (3, True, 1)  # a wait ends with a link, too
    shown = f"{run.values} {rendered_fields('collect_links', 'use_all')}"
    assert not [one["token"] for one in emulator.state()["tokens"] if one["token"] in shown], shown


@pytest.mark.parametrize("refused", [1, 2])
def test_the_folder_of_mapped_uploads_is_deleted_whatever_happened(emulator: Emulator, refused: int) -> None:
    urls = [emulator.serve(b"x", str(number)) for number in range(2)]
    emulator.fault("status", status=400, operation="upload", times=refused)
    run = run_dag(dag_of("stage-and-clean-up.md-1"), {"source_urls": urls})
    assert (run.state, run.tasks["clean_up"], run.tasks["finished"]) == ("failed", "success", "upstream_failed"), str(run)
    assert (emulator.state()["folders"], emulator.state()["files"]) == (["staging"], [])


def test_many_uploads(emulator: Emulator, tmp_path: Path) -> None:
    manifest = tmp_path / "urls.csv"
    manifest.write_text("url\n" + "".join(f"{emulator.serve(b'x', str(number))}\n" for number in range(5)))
    run = succeed(dag_of("many-uploads.md-0"), {"manifest": str(manifest), "receipts": str(tmp_path / "receipts")})
    assert run.values["upload"]["queued"] == 5
    receipts = "".join(file.read_text() for file in (tmp_path / "receipts").rglob("*.jsonl"))
    assert {json.loads(line)["status"] for line in receipts.splitlines()} == {"queued"}


def test_batch_results(emulator: Emulator, tmp_path: Path) -> None:
    urls = [emulator.serve(b"x", "first"), "not a URL", "https:///no-host?sig=secret", emulator.serve(b"x", "second")]
    manifest, failed = tmp_path / "urls.csv", tmp_path / "failed.csv"
    manifest.write_text("name,url\n" + "".join(f"file {number},{url}\n" for number, url in enumerate(urls)))
    params = {"manifest": str(manifest), "receipts": str(tmp_path / "receipts"), "failed": str(failed)}
    run = run_dag(dag_of("many-uploads.md-1"), params)
    assert (run.tasks["upload"], run.tasks["failed_urls"]) == ("failed", "success"), str(run)
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
    assert "4 passed" in done.stdout, done.stdout[-5000:] + done.stderr


on_yetishare = pytest.mark.parametrize("cloudstore_emulator", ["yetishare"], indirect=True)


@on_yetishare
def test_a_run_on_a_yetishare_site_uses_what_it_uploaded_and_deletes_its_own_folder(emulator: Emulator) -> None:
    emulator.put_file(b"of another run", "other", "theirs")
    urls = [emulator.serve(b"x" * number, f"{number}.csv") for number in (1, 10, 100)]
    run = succeed(dag_of("stage-on-yetishare.md-0"), {"source_urls": urls})
    assert run.values["use"] == 111
    state = emulator.state()
    folder_id = str(run.values["create_folder"])
    states = {one["folder_id"]: one["state"] for one in state["files"]}
    assert (states, state["folders"]) == ({folder_id: "trash", "theirs": "stored"}, ["theirs"])


@on_yetishare
@pytest.mark.parametrize(
    ("refused", "tasks"),
    [
        ("other", {"create_folder": "failed", "clean_up": "upstream_failed"}),
        ("upload", {"upload[0]": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("link", {"use": "failed", "clean_up": "success", "finished": "upstream_failed"}),
        ("delete", {"use": "success", "clean_up": "failed", "finished": "upstream_failed"}),
    ],
)
def test_a_run_on_a_yetishare_site_fails_if_anything_failed(emulator: Emulator, refused: str, tasks: dict[str, str]) -> None:
    emulator.fault("status", status=400, operation=refused, times=0)
    run = run_dag(dag_of("stage-on-yetishare.md-0"), {"source_urls": [emulator.serve(b"x")]})
    assert (run.state, run.tasks) == ("failed", run.tasks | tasks), str(run)
    assert (emulator.state()["folders"] == []) == (refused != "delete")
