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

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dags import doctor_dags as dags
from tests.unit.doctor.conftest import Doctor

LEVEL = "AIRFLOW__LOGGING__LOGGING_LEVEL"
BACKEND = "airflow.secrets.local_filesystem.LocalFilesystemBackend"

pytestmark = pytest.mark.slow  # make test-doctor


def as_uri(emulator: Emulator) -> str:
    parts = urlsplit(emulator.url)
    return f"cloudstore://:{quote(emulator.access_token, safe='')}@{parts.scheme}%3A%2F%2F{parts.hostname}:{parts.port}"


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
@pytest.mark.parametrize("form", ["json", "uri"])
def test_a_connection_from_the_environment(emulator: Emulator, program: Doctor, form: str, level: str) -> None:
    connection = emulator.connection if form == "json" else as_uri(emulator)
    done = program("--conn-id", "files", **{"AIRFLOW_CONN_FILES": connection, LEVEL: level})
    assert done.status == 0, done.out + done.err
    assert done.report["conn_id"] == "files"
    assert done.report["steps"][0]["seen"].startswith("HTTP 404")


def test_a_connection_from_a_secrets_backend(emulator: Emulator, program: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "connections.json"
    file.write_text(json.dumps({"kept": json.loads(emulator.connection)}))
    backend = {
        "AIRFLOW__SECRETS__BACKEND": BACKEND,
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(file)}),
    }
    done = program("--conn-id", "kept", **backend, **{LEVEL: "DEBUG"})
    assert done.status == 0, done.out + done.err
    assert done.report["steps"][0]["seen"].startswith("HTTP 404")


def test_a_secrets_backend_that_fails_is_reported(program: Doctor, tmp_path: Path) -> None:
    backend = {
        "AIRFLOW__SECRETS__BACKEND": BACKEND,
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(tmp_path / "none.json")}),
    }
    done = program("--conn-id", "kept", **backend)
    assert done.status == 1, done.err
    assert "it cannot be read" in done.report["verdict"]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_connection_from_airflows_database(emulator: Emulator, program: Doctor, level: str) -> None:
    conn_id = f"stored_{level.lower()}"
    command = [sys.executable, "-m", "airflow", "connections", "add", conn_id, "--conn-json", emulator.connection]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=100)
    done = program("--conn-id", conn_id, **{LEVEL: level})
    assert done.status == 0, done.out + done.err
    assert done.report["steps"][0]["seen"].startswith("HTTP 404")


@pytest.mark.usefixtures("airflow_db")
def test_a_connection_that_is_nowhere(program: Doctor) -> None:
    done = program("--conn-id", "nowhere", "--delete-folder", "old", **{LEVEL: "DEBUG"})
    assert done.status == 1, done.err
    assert (
        "it cannot be read: it is not defined, or Airflow cannot parse it. Add it in Admin > Connections"
        in done.report["verdict"]
    )
    assert "AIRFLOW_CONN_NOWHERE" in done.report["verdict"]


@pytest.mark.usefixtures("airflow_db")
def test_a_task_diagnoses_its_connection_and_returns_the_report(emulator: Emulator) -> None:
    run = run_dag(dags.doctor, {"source": emulator.serve(b"content")})
    assert run.state == "success", str(run)
    report: dict[str, Any] = run.values["examine"]
    assert report["usable"] is True
    assert [step["seen"] for step in report["steps"] if step["name"] == "download"] == ["the file came"]
    assert emulator.access_token not in json.dumps(run.xcoms)


@pytest.mark.usefixtures("emulator")
def test_a_notebook_gets_the_report_and_its_lines() -> None:
    lines: list[str] = []
    report = diagnose(say=lines.append)
    assert report.usable
    assert lines == []
    assert str(report).startswith("Tasks can rely on connection")
