"""Short deferrals: Airflow's scheduler must have seen that the task deferred before its trigger fires.

Slow: ``make test-airflow`` runs it.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.guarantees import Proof, guarantee
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
COUNT = 30 if AIRFLOW_2 else 100  # its tasks' processes start slowly
# At the default speed, unlike the other tests; more than 16 concurrent tasks only slow two cores down.
AS_SHIPPED = {"AIRFLOW__CORE__PARALLELISM": "16", "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1"}


@guarantee("waits", "100 files become available 1 to 5 s after their waits have deferred")
def test_waits_whose_files_come_one_to_five_seconds_after_they_deferred_succeed(tmp_path: Path, proven: Proof) -> None:
    chance = random.Random(1)
    due: dict[int, float] = {}

    with (
        Emulator() as emulator,
        RealAirflow(tmp_path / "home", DAGS, SHORT_WAITS=str(COUNT), **AS_SHIPPED) as airflow,
    ):
        airflow.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        airflow.start_all()
        run_id = airflow.trigger("short_waits")

        def finished() -> bool:
            now = time.monotonic()
            states = airflow.states(run_id)
            for (_, index), state in states.items():
                if state == "deferred" and index not in due:
                    due[index] = now + chance.uniform(1, 5)
            for index in [index for index, at in due.items() if at <= now]:
                emulator.put_file(b"x", f"short{index}")
                due[index] = float("inf")
            return len(states) == COUNT and {"success", "failed"} >= set(states.values())

        airflow.until("every wait is finished", finished, 900)
        states = airflow.states(run_id)
        failed = {index for (_, index), state in states.items() if state == "failed"}
        assert not failed, airflow.failures(run_id)
        assert len(due) == COUNT
        polls = emulator.state()["requests"]["link"]
    proven(requests=polls, lost=len(failed))
