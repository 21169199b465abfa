"""The blocks of docs/assets.md run unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableEventTrigger
from tests.doc_blocks import dag_of
from tests.real_airflow import AIRFLOW_2
from tests.support import activate, asset_events

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time


def test_the_event_of_a_published_file_holds_its_id(emulator: Emulator) -> None:
    emulator.put_file(b"x", "f123")
    dag = dag_of("assets.md-0")
    activate(dag, dag.tasks[0].outlets[0])
    run = run_dag(dag)
    assert run.state == "success", run
    assert asset_events("cloudstore://files.example.com/daily-report") == [{"file_id": "f123"}]


@pytest.mark.skipif(AIRFLOW_2, reason="Airflow 2 has no asset watchers")
def test_a_watcher_of_files_is_a_schedule() -> None:
    dag: Any = dag_of("assets.md-1")
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert isinstance(watcher.trigger, FileAvailableEventTrigger)
    run = run_dag(dag)
    assert run.values == {"arrived": []}, run
