"""A slow upload on a complete Airflow with one worker slot: the wait occupies no slot, and a killed triggerer loses nothing.

Slow: ``make test-airflow`` runs it on three Airflows.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.guarantees import Proof, guarantee
from tests.real_airflow import AIRFLOW_2, RealAirflow

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
CONTENT = b"x" * 200_000
ACCESS_TOKEN = "access-token-of-the-waiting-test"


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(access_token=ACCESS_TOKEN, fetch_delay=3600) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    home = tmp_path_factory.mktemp("waiting") / "home"
    with RealAirflow(home, DAGS, AIRFLOW__CORE__PARALLELISM="1") as running:
        running.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        running.start_all()
        yield running


def deferred_rows(airflow: RealAirflow) -> str:
    """Return all database rows of triggers and of tasks that will resume."""
    columns = "next_kwargs" if AIRFLOW_2 else "next_method, next_kwargs"
    rows = [*airflow.rows("select * from trigger"), *airflow.rows(f"select {columns} from task_instance")]
    return str(rows)


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param(False, marks=guarantee("waits", "none: two waits and other tasks share one worker slot"), id="undisturbed"),
        pytest.param(True, marks=guarantee("waits", "the triggerer is killed, and another started"), id="triggerer-killed"),
    ],
)
def test_a_slow_upload_is_waited_for_without_a_worker_and_ends_in_one_link(
    airflow: RealAirflow, emulator: Emulator, kill: bool, proven: Proof
) -> None:
    seconds = None

    def reset(service: Any) -> None:
        service.store.requests.clear()
        service.store.effects.clear()
        service.store.files.clear()

    emulator.call(reset)
    run_id = airflow.trigger("waiting")

    def waiting() -> bool:
        states = airflow.states(run_id)
        assert "failed" not in states.values(), airflow.failures(run_id)
        return states.get(("link", -1)) == states.get(("sensor", -1)) == "deferred"

    airflow.until("both waits are deferred", waiting)
    # There is one worker slot. No other task could run if a wait occupied it.
    airflow.until("the slot is free", lambda: airflow.states(run_id).get(("meanwhile", -1)) == "success")
    assert waiting()
    seen = deferred_rows(airflow)
    polls = emulator.state()["requests"]["link"]
    airflow.until("the triggerer polls", lambda: emulator.state()["requests"]["link"] > polls + 2)
    if kill:
        airflow.stop("triggerer", signal.SIGKILL)
        polls, killed_at = emulator.state()["requests"]["link"], time.monotonic()
        assert waiting()
        airflow.start("triggerer")
        airflow.until("the new triggerer polls", lambda: emulator.state()["requests"]["link"] > polls)
        seconds = time.monotonic() - killed_at
        airflow.until("both waits are polled", lambda: emulator.state()["requests"]["link"] > polls + 2)
    seen += deferred_rows(airflow)
    emulator.put_file(CONTENT, emulator.state()["files"][0]["file_id"])
    states = airflow.finish(run_id)
    seen += deferred_rows(airflow)
    assert set(states.values()) == {"success"}
    state = emulator.state()
    tokens = [token["token"] for token in state["tokens"]]
    assert state["effects"]["upload"] == state["requests"]["upload"] == 1
    xcom = str(airflow.rows("select value from xcom where task_id = 'link' and run_id = ?", run_id))
    used = [token for token in tokens if token in xcom]
    assert len(used) == 1
    assert next(token["downloads"] for token in state["tokens"] if token["token"] == used[0]) == 1
    assert "FileAvailableTrigger" in seen
    for secret in (ACCESS_TOKEN, *tokens):
        assert secret not in seen
    proven(
        requests=state["requests"]["upload"],
        effects=state["effects"]["upload"],
        twice=state["effects"]["upload"] - 1,
        at_most=0,
        lost=sum(one != "success" for one in states.values()),
        seconds=seconds,
    )
