"""A slow upload on a complete Airflow with one worker slot: the wait occupies no slot, and a killed triggerer loses nothing.

Slow: ``make test-airflow`` runs it on three Airflows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
CONTENT = b"x" * 200_000


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=3600) as running:
        yield running


@pytest.fixture
def airflow(emulator: Emulator, tmp_path: Path) -> Iterator[RealAirflow]:
    with RealAirflow(tmp_path / "home", DAGS, AIRFLOW__CORE__PARALLELISM="1") as running:
        running.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        running.start_all()
        yield running


def deferred_rows(airflow: RealAirflow) -> str:
    """Return all database rows of triggers and of tasks that will resume."""
    columns = "next_kwargs" if AIRFLOW_2 else "next_method, next_kwargs"
    rows = [*airflow.rows("select * from trigger"), *airflow.rows(f"select {columns} from task_instance")]
    return str(rows)


def test_a_slow_upload_is_waited_for_without_a_worker_and_ends_in_one_link(airflow: RealAirflow, emulator: Emulator) -> None:
    run_id = airflow.trigger("waiting")

    def waiting() -> bool:
        states = airflow.states(run_id)
        assert "failed" not in states.values(), airflow.failures(run_id)
        return states.get(("link", -1)) == states.get(("sensor", -1)) == "deferred"

    def until_polled() -> None:
        polls = emulator.state()["requests"]["link"]
        airflow.until("both waits are polled", lambda: emulator.state()["requests"]["link"] > polls + 2)

    airflow.until("both waits are deferred", waiting)
    # There is one worker slot. No other task could run if a wait occupied it.
    airflow.until("the slot is free", lambda: airflow.states(run_id).get(("meanwhile", -1)) == "success")
    until_polled()
    seen = deferred_rows(airflow)
    airflow.kill("triggerer")
    assert waiting()
    airflow.start("triggerer")
    until_polled()
    emulator.put_file(CONTENT, emulator.state()["files"][0]["file_id"])
    states = airflow.finish(run_id)
    seen += deferred_rows(airflow)
    assert set(states.values()) == {"success"}
    state = emulator.state()
    assert state["requests"]["upload"] == 1
    xcom = str(airflow.rows("select value from xcom where task_id = 'link' and run_id = ?", run_id))
    assert [token["token"] in xcom for token in state["tokens"]].count(True) == state["requests"]["download"] == 1
    assert "FileAvailableTrigger" in seen
    for secret in (emulator.access_token, *(token["token"] for token in state["tokens"])):
        assert secret not in seen
