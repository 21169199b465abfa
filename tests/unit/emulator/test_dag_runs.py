from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dags import operator_dags as dags

pytestmark = pytest.mark.usefixtures("airflow_db")


def test_a_failed_run_reports_which_tasks_failed_and_why(emulator: Emulator) -> None:
    run = run_dag(dags.link)
    assert run.state == "failed"
    assert run.tasks == {"link": "failed", "use": "upstream_failed"}
    assert run.errors["link"].startswith("NotFoundError: download link 'f1': HTTP 404: Could not find the file.")
    assert str(run).splitlines()[0] == "The run ended as failed."
    assert f"  link: failed: {run.errors['link']}" in str(run)
    assert "  use: upstream_failed" in str(run)


def test_a_run_has_its_configuration_and_its_date_and_every_xcom_by_its_key(emulator: Emulator) -> None:
    emulator.make_folder("tmp-2026-03-04")
    run = run_dag(dags.dated_delete, {"prefix": "tmp"}, logical_date=datetime(2026, 3, 4, tzinfo=UTC))
    assert run.state == "success", str(run)
    assert run.values["delete"]["folder_id"] == "tmp-2026-03-04"
    assert run.errors == {}
    emulator.put_file(b"x", "f1", "a")
    run = run_dag(dags.link)
    assert run.xcoms["link"].keys() == {"return_value", "download_link"}
    assert run.xcoms["link"]["download_link"]["token"] == run.xcoms["link"]["return_value"] == run.values["link"]


def test_mapped_tasks_are_named_by_their_index(emulator: Emulator) -> None:
    run = run_dag(dags.mapped_upload, {"sources": [emulator.serve(b"a"), "no url"]})
    assert run.tasks == {"sources": "success", "upload[0]": "success", "upload[1]": "failed"}
    assert run.values["upload[0]"]["response"]["_status"] == "success"
    assert run.errors.keys() == {"upload[1]"}
    assert "upload[1]: failed: InvalidInputError: " in str(run)
