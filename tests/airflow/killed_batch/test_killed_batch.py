"""SIGKILL to the task's process at random moments, on a whole Airflow: every URL arrives, and few arrive twice.

Slow: ``make test-kill`` runs it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import AIRFLOW_2, RealAirflow
from tests.support import assert_within_bounds

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
ROOT = DAGS.parents[3]
KILLS = 50
RATE = 200
CONCURRENCY = 8
COUNT = 14_000  # more than fifty tries can finish
UNRELIABLE_KILLS = 20
UNRELIABLE_COUNT = 6_000
needs_airflow_3 = pytest.mark.skipif(
    AIRFLOW_2, reason="the newest Airflow has the long tests, and a log that says when a try ended"
)
TWICE = CONCURRENCY + 2 * RATE  # what one kill may send twice: what was in flight, and two seconds of sending


@dataclass(frozen=True)
class Run:
    """What became of a batch that was killed again and again."""

    states: dict[tuple[str, int], str]
    kills: int
    urls: list[str]
    requests: int
    arrived: Counter[str]

    def assert_its_word_is_kept(self, kills: int) -> None:
        assert self.states == {("batch", -1): "success"}
        assert self.kills == kills
        assert self.arrived.keys() <= set(self.urls)
        assert_within_bounds(
            requests=self.requests,
            effects=sum(self.arrived.values()),
            twice=sum(self.arrived.values()) - len(self.arrived),
            at_most=kills * TWICE,
            lost=len(set(self.urls) - self.arrived.keys()),
        )


def prepare(folder: Path, count: int) -> tuple[Path, list[str], dict[str, str]]:
    """The file for the task's process id, the URLs of a manifest, and the environment that the DAG reads."""
    urls = [f"https://source.example/{number}" for number in range(count)]
    (folder / "urls.txt").write_text("\n".join(urls))
    env = {
        "KILLED_PID": str(folder / "pid"),
        "KILLED_MANIFEST": str(folder / "urls.txt"),
        "KILLED_RECEIPTS": str(folder / "receipts"),
        "KILLED_RATE": str(RATE),
        "PYTHONPATH": str(ROOT),
    }
    return folder / "pid", urls, env


def run_and_kill(folder: Path, *, kills: int, count: int, longest: float, **env: str) -> Run:
    """Run a batch of ``count`` URLs, and kill each of its tries within ``longest`` seconds until there were enough ``kills``."""
    pid_file, urls, own = prepare(folder, count)
    env = own | env
    moments, done = random.Random(1), 0
    with Emulator(fetch_delay=3600) as emulator, RealAirflow(folder / "home", DAGS, **env) as airflow:
        airflow.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        airflow.start_all()
        run_id = airflow.trigger("killed")
        over = "select 1 from dag_run where run_id = ? and state in ('success', 'failed')"
        while done < kills and not airflow.rows(over, run_id):
            # A try that was killed before it left its mark would have sent nothing, and the next one refuses to: see the docs.
            if pid_file.exists() and list((folder / "receipts").glob("batch-*")):
                pid = int(pid_file.read_text())
                time.sleep(moments.uniform(0.0, longest))
                pid_file.unlink()
                os.kill(pid, signal.SIGKILL)
                done += 1
            time.sleep(0.05)
        states = airflow.finish(run_id, 300)
        state = emulator.state()
    return Run(states, done, urls, state["requests"]["upload"], Counter(stored["source"] for stored in state["files"]))


@needs_airflow_3
def test_after_fifty_kills_every_url_has_arrived_and_few_twice(tmp_path: Path) -> None:
    run = run_and_kill(tmp_path, kills=KILLS, count=COUNT, longest=2.0)
    run.assert_its_word_is_kept(KILLS)


@pytest.mark.skipif(not AIRFLOW_2, reason="the newest Airflow has fifty kills")
def test_the_same_holds_on_the_oldest_airflow(tmp_path: Path) -> None:
    run = run_and_kill(tmp_path, kills=10, count=4_000, longest=2.0)
    twice = run.arrived.total() - len(run.arrived)
    print(f"{run.kills} kills, {run.requests:,} requests, {twice:,} sent twice")
    assert (run.states, run.kills) == ({("batch", -1): "success"}, 10)
    assert run.arrived.keys() == set(run.urls)
    assert twice <= 10 * TWICE


# A test of its own, so that another worker of pytest-xdist runs it meanwhile.
@needs_airflow_3
def test_the_same_holds_while_reads_and_writes_of_the_store_fail_at_random(tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    kept = {"KILLED_RECEIPTS": f"unreliable://{tmp_path}/receipts", "UNRELIABLE_LOG": str(failures)}
    run = run_and_kill(tmp_path, kills=UNRELIABLE_KILLS, count=UNRELIABLE_COUNT, longest=4.0, **kept)
    failed = Counter(failures.read_text().split())
    print(f"calls that failed: {dict(failed)}")
    run.assert_its_word_is_kept(UNRELIABLE_KILLS)
    assert failed.keys() == {"read", "write"}
    assert min(failed.values()) >= UNRELIABLE_KILLS // 4
    parts = (part.read_text() for part in (tmp_path / "receipts").glob("part-*.jsonl"))
    receipts = [json.loads(line) for part in parts for line in part.splitlines()]
    assert {receipt["line"] for receipt in receipts if receipt["status"] == "queued"} == set(range(1, UNRELIABLE_COUNT + 1))


@needs_airflow_3
def test_sigterm_saves_the_progress_and_the_retry_goes_on_with_nothing_sent_twice(tmp_path: Path) -> None:
    pid_file, urls, env = prepare(tmp_path, 2_000)
    with Emulator(fetch_delay=3600) as emulator, RealAirflow(tmp_path / "home", DAGS, **env) as airflow:
        airflow.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        airflow.start_all()
        run_id = airflow.trigger("killed")
        pid = int(airflow.until("the task runs", lambda: pid_file.exists() and pid_file.read_text()))
        airflow.until("uploads arrive", lambda: len(emulator.state()["files"]) > 300)
        sent = datetime.now(UTC)
        os.kill(pid, signal.SIGTERM)
        assert airflow.finish(run_id, 120) == {("batch", -1): "success"}
        state = emulator.state()
        log = next(text for file, text in airflow.logs() if "task_id=batch" in str(file) and file.name == "attempt=1.log")
        tries = airflow.rows("select try_number from task_instance where run_id = ?", run_id)
    ended = next(json.loads(line)["timestamp"] for line in log.splitlines() if "Task failed with exception" in line)
    took = (datetime.fromisoformat(ended) - sent).total_seconds()
    print(f"ended {took:.1f} s after SIGTERM")
    assert took < 2
    assert tries == [(2,)]
    arrived = Counter(stored["source"] for stored in state["files"])
    assert_within_bounds(
        requests=state["requests"]["upload"],
        effects=sum(arrived.values()),
        twice=sum(arrived.values()) - len(arrived),
        at_most=0,
        lost=len(set(urls) - arrived.keys()),
    )
