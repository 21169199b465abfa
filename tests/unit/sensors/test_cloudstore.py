from __future__ import annotations

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.dag_runs import run_dag
from tests.dags import operator_dags as dags
from tests.support import store_file


@pytest.mark.usefixtures("airflow_db")
def test_the_sensor_returns_the_id_of_the_file_in_every_mode(emulator: Emulator) -> None:
    store_file(emulator)
    assert run_dag(dags.sensor).values == {"poke": "f1", "reschedule": "f1", "deferrable": "f1"}


def test_a_sensor_that_resumes_returns_the_id_that_it_waited_for() -> None:
    sensor = FileAvailableSensor(task_id="wait", file_id="what the template renders to by now")
    assert sensor.execute_complete({}, {"status": "available"}, "f1") == "f1"
