"""SIGKILL to the process of an upload's task, on a whole Airflow: what Airflow's retry knows of it, and what it sends.

Slow: ``make test-airflow`` runs it on Airflow 3.3.2 and 2.11.2.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.guarantees import Proof, guarantee
from tests.real_airflow import AIRFLOW_2, RealAirflow
from tests.support import NO_RESPONSE

pytestmark = pytest.mark.slow

needs_a_state_store = pytest.mark.skipif(AIRFLOW_2, reason="Airflow 2 has no task state store: its retry sends again")


def uploads(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def figures(emulator: Emulator, at_most: int) -> dict[str, int]:
    """What one upload has come to: one effect is what was asked for."""
    state = emulator.state()
    effects = state["effects"].get("upload", 0)
    return {
        "requests": state["requests"]["upload"],
        "effects": effects,
        "twice": max(0, effects - 1),
        "at_most": at_most,
        "lost": int(effects == 0),
    }


def killed_while_sending(dag_id: str, airflow: RealAirflow, emulator: Emulator, folder: Path) -> str:
    """Run a DAG whose first try is killed after the service has queued the upload and before its response has come."""
    emulator.fault(**NO_RESPONSE, operation="upload")
    run_id = airflow.trigger(dag_id, folder=str(folder))
    airflow.until("the upload is queued", lambda: emulator.state()["effects"].get("upload") == 1)
    os.kill(int((folder / "1.pid").read_text()), signal.SIGKILL)
    return run_id


def clear(airflow: RealAirflow, dag_id: str, run_id: str) -> dict[tuple[str, int], str]:
    airflow.cli("tasks", "clear", dag_id, "--yes")
    return airflow.finish(run_id)


def tries(airflow: RealAirflow, run_id: str) -> int:
    return int(airflow.rows("select try_number from task_instance where run_id = ?", run_id)[0][0])


def log(airflow: RealAirflow, run_id: str, number: int) -> str:
    return next(text for file, text in airflow.logs() if run_id in str(file) and file.name == f"attempt={number}.log")


@needs_a_state_store
@guarantee("uploads", "its process is killed before the service's response")
def test_a_retry_after_a_kill_sends_nothing_and_says_what_to_look_for(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path, proven: Proof
) -> None:
    run_id = killed_while_sending("killed_while", airflow, emulator, tmp_path)
    assert airflow.finish(run_id) == {("upload", -1): "failed"}
    assert uploads(emulator) == 1
    proven(**figures(emulator, at_most=0))
    assert tries(airflow, run_id) == 2  # of three: the failure is permanent
    reported = log(airflow, run_id, 2)
    assert "OutcomeUnknownError" in reported
    assert "try 1 ended while sending this upload" in reported
    assert "Check in the service whether the file arrived" in reported
    stored = str(airflow.rows("select key, value from task_state_store"))
    assert "unknown" in stored
    assert "hunter" not in stored + reported
    assert clear(airflow, "killed_while", run_id) == {("upload", -1): "success"}
    assert uploads(emulator) == 2


@needs_a_state_store
@guarantee("uploads", "the same, with `retry_unknown_outcome=True`")
def test_a_retry_after_a_kill_sends_again_where_that_was_allowed(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path, proven: Proof
) -> None:
    run_id = killed_while_sending("killed_while_again", airflow, emulator, tmp_path)
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    proven(**figures(emulator, at_most=1))
    assert uploads(emulator) == 2
    assert tries(airflow, run_id) == 2


@needs_a_state_store
@guarantee("uploads", "its process is killed after the service's response")
def test_a_try_that_was_killed_after_its_upload_was_queued_hands_its_result_to_the_retry(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path, proven: Proof
) -> None:
    run_id = airflow.trigger("killed_after", folder=str(tmp_path))
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    proven(**figures(emulator, at_most=0))
    assert tries(airflow, run_id) == 2
    assert uploads(emulator) == 1
    xcom = str(airflow.rows("select value from xcom where run_id = ? and key = 'return_value'", run_id))
    assert emulator.state()["files"][0]["file_id"] in xcom
    assert clear(airflow, "killed_after", run_id) == {("upload", -1): "success"}
    assert uploads(emulator) == 2


@pytest.mark.skipif(not AIRFLOW_2, reason="Airflow 3.3 has a task state store")
def test_before_airflow_3_3_a_retry_after_a_kill_sends_again(airflow: RealAirflow, emulator: Emulator, tmp_path: Path) -> None:
    run_id = killed_while_sending("killed_while", airflow, emulator, tmp_path)
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    assert uploads(emulator) == 2
