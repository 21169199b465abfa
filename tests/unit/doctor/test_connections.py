"""The doctor finds connections as tasks do, on every Airflow, and its standard output is JSON whatever Airflow logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag
from tests.dags import doctor_dags as dags

pytestmark = pytest.mark.slow  # make test-doctor


def run(conn_id: str, status: int, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program as people do, where Airflow logs all that it can."""
    flags = ("--json", "--conn-id", conn_id, "--upload", "ftp://127.0.0.1:9/file", "--wait", "0")
    command = [sys.executable, "-m", "airflow_provider_cloudstore.doctor", *flags]
    environment = {**os.environ, "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG", **env}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.mark.usefixtures("airflow_db")
def test_a_connection_from_airflows_database(emulator: Emulator) -> None:
    command = [sys.executable, "-m", "airflow", "connections", "add", "stored", "--conn-json", emulator.connection]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=100)
    assert "link: NotFoundError. " in str(json.loads(run("stored", 1).stdout)["problems"])


@pytest.mark.usefixtures("airflow_db")
def test_a_task_diagnoses_its_connection_and_returns_the_report(emulator: Emulator) -> None:
    ended = run_dag(dags.doctor, {"source": emulator.serve(b"content")})
    assert ended.state == "success", str(ended)
    report: dict[str, Any] = ended.values["examine"]
    assert report["usable"] is True
    assert report["steps"][-1]["outcome"] == "DownloadLink"
    assert emulator.access_token not in json.dumps(ended.values)
