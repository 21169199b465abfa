"""SIGKILL to the process of an upload's task, on a whole Airflow: what Airflow's retry knows of it, and what it sends.

Slow: ``make test-airflow`` runs it on Airflow 3.3.2 and 2.11.2.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import AIRFLOW_2, RealAirflow
from tests.support import NO_RESPONSE

pytestmark = pytest.mark.slow

needs_a_state_store = pytest.mark.skipif(AIRFLOW_2, reason="Airflow 2 has no task state store: its retry sends again")


def uploads(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


def killed_while_sending(airflow: RealAirflow, emulator: Emulator, folder: Path) -> str:
    """Run a DAG whose first try is killed after the service has queued the upload and before its response has come."""
    emulator.fault(**NO_RESPONSE, operation="upload")
    run_id = airflow.trigger("killed_while", folder=str(folder))
    airflow.until("the upload is queued", lambda: emulator.state()["effects"].get("upload") == 1)
    os.kill(int((folder / "1.pid").read_text()), signal.SIGKILL)
    return run_id


def tries(airflow: RealAirflow, run_id: str) -> int:
    return int(airflow.rows("select try_number from task_instance where run_id = ?", run_id)[0][0])


@needs_a_state_store
def test_a_retry_after_a_kill_sends_nothing_and_says_what_to_look_for(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path
) -> None:
    run_id = killed_while_sending(airflow, emulator, tmp_path)
    assert airflow.finish(run_id) == {("upload", -1): "failed"}
    assert uploads(emulator) == 1
    assert tries(airflow, run_id) == 2  # of three: the failure is permanent
    (reported,) = [text for file, text in airflow.logs() if run_id in str(file) and file.name == "attempt=2.log"]
    assert "OutcomeUnknownError" in reported
    assert "Check in the service whether the file arrived" in reported
    assert "hunter" not in str(airflow.rows("select key, value from task_state_store")) + reported
    airflow.cli("tasks", "clear", "killed_while", "--yes")
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    assert uploads(emulator) == 2


@needs_a_state_store
def test_a_try_that_was_killed_after_its_upload_was_queued_hands_its_result_to_the_retry(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path
) -> None:
    run_id = airflow.trigger("killed_after", folder=str(tmp_path))
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    assert tries(airflow, run_id) == 2
    assert uploads(emulator) == 1
    xcom = str(airflow.rows("select value from xcom where run_id = ? and key = 'return_value'", run_id))
    assert emulator.state()["files"][0]["file_id"] in xcom


@pytest.mark.skipif(not AIRFLOW_2, reason="Airflow 3.3 has a task state store")
def test_before_airflow_3_3_a_retry_after_a_kill_sends_again(airflow: RealAirflow, emulator: Emulator, tmp_path: Path) -> None:
    run_id = killed_while_sending(airflow, emulator, tmp_path)
    assert airflow.finish(run_id) == {("upload", -1): "success"}
    assert uploads(emulator) == 2
