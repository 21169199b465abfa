"""SIGKILL to the task's process at random moments, on a whole Airflow: every URL arrives, and few arrive twice.

Slow: ``make test-kill`` runs it.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import AIRFLOW_2, RealAirflow
from tests.support import assert_within_bounds

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
KILLS = 5 if AIRFLOW_2 else 25  # the newest Airflow has the long test
RATE = 200  # this and the 8 as in dags/killed.py
TWICE = 8 + 2 * RATE  # what one kill may send twice: what was in flight, and two seconds of sending
URLS = [f"https://source.example/{number}" for number in range(1_500 + 300 * KILLS)]
"""More than the tries that are killed can finish."""


def arrived(emulator: Emulator) -> Counter[str]:
    """How often each URL has arrived."""
    return Counter(stored["source"] for stored in emulator.state()["files"])


def kill_after(uploads: int, airflow: RealAirflow, emulator: Emulator, folder: Path) -> None:
    """Kill the process of a try when it has sent so many uploads."""
    # A try that was killed before it wrote its owner file would have sent nothing, and the next one refuses to: see the docs.
    noted, receipts = folder / "pid", folder / "receipts"
    airflow.until("a try runs", lambda: noted.exists() and list(receipts.glob("batch-*")))
    pid, before = int(noted.read_text()), arrived(emulator).total()
    noted.unlink()
    airflow.until("it sends", lambda: arrived(emulator).total() >= before + uploads)
    os.kill(pid, signal.SIGKILL)


def test_after_many_kills_every_url_has_arrived_and_few_twice(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("\n".join(URLS))
    with Emulator(fetch_delay=3600) as emulator:
        env = {
            "AIRFLOW_CONN_CLOUDSTORE_DEFAULT": emulator.connection,
            "KILLED_FOLDER": str(tmp_path),
            "PYTHONPATH": str(DAGS.parents[3]),
        }
        with RealAirflow(tmp_path / "home", DAGS, **env) as airflow:
            airflow.start_all()
            airflow.trigger("killed")
            dice = random.Random(1)
            for _ in range(KILLS):
                kill_after(dice.randrange(2 * RATE), airflow, emulator, tmp_path)  # at most the uploads of two seconds
            ends = "select state, try_number from task_instance where state in ('success', 'failed')"
            ((state, tries),) = airflow.until("it ends", lambda: airflow.rows(ends), 300)
        found = arrived(emulator)
    assert state == "success"
    assert tries > KILLS
    assert found.keys() <= {*URLS}
    twice, lost = found.total() - len(found), len(URLS) - len(found)
    assert_within_bounds(twice=twice, at_most=KILLS * TWICE, lost=lost, urls=len(URLS), tries=tries)
