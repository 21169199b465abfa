from __future__ import annotations

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag
from tests.dags import operator_dags as dags
from tests.support import store_file


@pytest.mark.usefixtures("airflow_db")
def test_the_sensor_returns_the_id_of_the_file_in_every_mode(emulator: Emulator) -> None:
    store_file(emulator)
    assert run_dag(dags.sensor).values == {"poke": "f1", "reschedule": "f1", "deferrable": "f1"}
