"""The pair of example DAGs over an asset in a full Airflow.

Slow: ``make test-airflow`` runs it on both Airflows.
"""

from __future__ import annotations

import json

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

CONTENT = b"x" * 200_000
EVENTS = "dataset_event" if AIRFLOW_2 else "asset_event"


def test_a_published_file_starts_the_dag_that_uses_it(airflow: RealAirflow, emulator: Emulator) -> None:
    airflow.unpause("example_use_published_file")
    file_id = emulator.put_file(CONTENT, "f1")
    run_id = airflow.trigger("example_publish_file", file_id=file_id)
    assert set(airflow.finish(run_id).values()) == {"success"}
    assert [json.loads(extra) for (extra,) in airflow.rows(f"select extra from {EVENTS}")] == [{"file_id": file_id}]
    over = "select state from dag_run where dag_id = 'example_use_published_file' and state in ('success', 'failed')"
    assert airflow.until("the consumer has run", lambda: airflow.rows(over)) == [("success",)]
    assert "200000" in str(airflow.rows("select value from xcom where task_id = 'use'"))
