"""The doctor finds connections as tasks do, on every Airflow, and its standard output is JSON whatever Airflow logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag
from tests.dags import doctor_dags as dags
from tests.unit.doctor.conftest import Doctor

pytestmark = pytest.mark.slow  # make test-doctor


def secrets_backend(file: Path) -> dict[str, str]:
    return {
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(file)}),
    }


def test_a_connection_from_the_environment(emulator: Emulator, program: Doctor) -> None:
    parts = urlsplit(emulator.url)
    uri = f"cloudstore://:{quote(emulator.access_token, safe='')}@{parts.scheme}%3A%2F%2F{parts.hostname}:{parts.port}"
    done = program("--conn-id", "files", AIRFLOW_CONN_FILES=uri)
    assert done.status == 0, done.out + done.err
    assert done.report["conn_id"] == "files"


def test_a_connection_from_a_secrets_backend(emulator: Emulator, program: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "connections.json"
    file.write_text(json.dumps({"kept": json.loads(emulator.connection)}))
    done = program("--conn-id", "kept", **secrets_backend(file))
    assert done.status == 0, done.out + done.err


def test_a_secrets_backend_that_fails_is_reported(program: Doctor, tmp_path: Path) -> None:
    done = program("--conn-id", "kept", **secrets_backend(tmp_path / "none.json"))
    assert done.status == 1, done.err
    assert "it cannot be read" in done.report["verdict"]


@pytest.mark.usefixtures("airflow_db")
def test_a_connection_from_airflows_database(emulator: Emulator, program: Doctor) -> None:
    command = [sys.executable, "-m", "airflow", "connections", "add", "stored", "--conn-json", emulator.connection]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=100)
    done = program("--conn-id", "stored", "--delete-folder", "old")
    assert done.status == 1, done.out + done.err
    assert done.report["verdict"].startswith("Tasks cannot rely on connection 'stored', because deletions fail: HTTP 404")


@pytest.mark.usefixtures("airflow_db")
def test_a_connection_that_is_nowhere(program: Doctor) -> None:
    done = program("--conn-id", "nowhere", "--delete-folder", "old")
    assert done.status == 1, done.err
    assert "it is not defined, or Airflow cannot parse it. Add it in Admin" in done.report["verdict"]


@pytest.mark.usefixtures("airflow_db")
def test_a_task_diagnoses_its_connection_and_returns_the_report(emulator: Emulator) -> None:
    run = run_dag(dags.doctor, {"source": emulator.serve(b"content")})
    assert run.state == "success", str(run)
    report: dict[str, Any] = run.values["examine"]
    assert report["usable"] is True
    assert [step["seen"] for step in report["steps"] if step["name"] == "download"] == ["the file came"]
    assert emulator.access_token not in json.dumps(run.values)
