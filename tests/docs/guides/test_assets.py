"""The block of docs/guides/assets.md runs unchanged."""

from __future__ import annotations

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag
from tests.doc_blocks import dag_of
from tests.support import activate, asset_events

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time


def test_the_event_of_a_published_file_holds_its_id(emulator: Emulator) -> None:
    emulator.put_file(b"x", "f123")
    dag = dag_of("assets.md-0")
    activate(dag, dag.tasks[0].outlets[0])
    run = run_dag(dag)
    assert run.state == "success", run
    assert asset_events("cloudstore://files.example.com/daily-report") == [{"file_id": "f123"}]
