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
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
KILLS = 6 if AIRFLOW_2 else 30
UNRELIABLE_KILLS = 12
COUNT_FOR_EACH_KILL = 300  # more than the tries can finish
TWICE = 8 + 2 * 200  # what one kill may send twice, as in dags/killed.py: what was in flight, and two seconds of sending
needs_airflow_3 = pytest.mark.skipif(
    AIRFLOW_2, reason="the newest Airflow has the long tests, and a log that says when a try ended"
)


@dataclass(frozen=True)
class Batch:
    """A batch on an Airflow, with a folder for its manifest, the id of its process, and perhaps its receipts."""

    airflow: RealAirflow
    emulator: Emulator
    folder: Path
    urls: list[str]
    run_id: str

    def pid(self) -> int:
        """The id of the try's process, as soon as it runs; then it is forgotten."""
        # A try that was killed before it left its mark would have sent nothing, and the next one refuses to: see the docs.
        pid, marks = self.folder / "pid", (self.folder / "receipts").glob
        self.airflow.until(f"a try of {self.folder.name} runs", lambda: pid.exists() and list(marks("batch-*")))
        found = int(pid.read_text())
        pid.unlink()
        return found

    def kill(self, kills: int, longest: float) -> None:
        """Kill each try within ``longest`` seconds until there were enough ``kills``."""
        moments = random.Random(1)
        for _ in range(kills):
            pid = self.pid()
            time.sleep(moments.uniform(0.0, longest))
            os.kill(pid, signal.SIGKILL)

    def arrived(self) -> Counter[str]:
        """How often each of its URLs has arrived."""
        sources = Counter(stored["source"] for stored in self.emulator.state()["files"])
        return Counter({url: count for url, count in sources.items() if f"/{self.folder.name}/" in url})

    def assert_finished(self, at_most: int) -> None:
        """Wait for its end; nothing is lost, and at most so many uploads were sent twice."""
        assert self.airflow.finish(self.run_id) == {("batch", -1): "success"}
        arrived = self.arrived()
        assert arrived.keys() <= set(self.urls)
        twice, lost = arrived.total() - len(arrived), len(self.urls) - len(arrived)
        assert_within_bounds(twice=twice, at_most=at_most, lost=lost, urls=len(self.urls))


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=3600) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    """One for all batches, which run at the same time."""
    root = tmp_path_factory.mktemp("airflow")
    with RealAirflow(root / "home", DAGS, PYTHONPATH=str(ROOT), UNRELIABLE_LOG=str(root / "failures")) as running:
        running.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        for name in ["scheduler"] if AIRFLOW_2 else ["api-server", "scheduler", "dag-processor"]:
            running.start(name)
        yield running


def start(airflow: RealAirflow, emulator: Emulator, folder: Path, count: int, scheme: str = "") -> Batch:
    """Start a batch of so many URLs, whose receipts are kept under a scheme, such as ``unreliable://``."""
    urls = [f"https://source.example/{folder.name}/{number}" for number in range(count)]
    (folder / "urls.txt").write_text("\n".join(urls))
    return Batch(airflow, emulator, folder, urls, airflow.trigger("killed", folder=str(folder), scheme=scheme))


Killed = tuple[Batch, Future[None]]


@pytest.fixture(scope="module")
def killed(airflow: RealAirflow, emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Killed]]:
    """The batches that are killed again and again, while the tests run."""
    with ThreadPoolExecutor() as threads:
        batch = start(airflow, emulator, tmp_path_factory.mktemp("often"), KILLS * COUNT_FOR_EACH_KILL)
        found = {"often": (batch, threads.submit(batch.kill, KILLS, 2.0))}
        if not AIRFLOW_2:
            folder, count = tmp_path_factory.mktemp("unreliable"), UNRELIABLE_KILLS * COUNT_FOR_EACH_KILL
            batch = start(airflow, emulator, folder, count, "unreliable://")
            found["unreliable"] = batch, threads.submit(batch.kill, UNRELIABLE_KILLS, 4.0)
        yield found


@needs_airflow_3
@pytest.mark.usefixtures("killed")  # at the same time
def test_sigterm_saves_the_progress_and_the_retry_goes_on_with_nothing_sent_twice(
    airflow: RealAirflow, emulator: Emulator, tmp_path: Path
) -> None:
    batch = start(airflow, emulator, tmp_path, 2_000)
    pid = batch.pid()
    airflow.until("uploads arrive", lambda: len(batch.arrived()) > 300)
    sent = datetime.now(UTC)
    os.kill(pid, signal.SIGTERM)
    batch.assert_finished(at_most=0)
    log = next(text for file, text in airflow.logs() if batch.run_id in str(file) and file.name == "attempt=1.log")
    ended = next(json.loads(line)["timestamp"] for line in log.splitlines() if "Task failed with exception" in line)
    took = (datetime.fromisoformat(ended) - sent).total_seconds()
    print(f"ended {took:.1f} s after SIGTERM")
    assert took < 2
    assert airflow.rows("select try_number from task_instance where run_id = ?", batch.run_id) == [(2,)]


def test_after_many_kills_every_url_has_arrived_and_few_twice(killed: dict[str, Killed]) -> None:
    batch, killing = killed["often"]
    killing.result()
    batch.assert_finished(KILLS * TWICE)


@needs_airflow_3
def test_the_same_holds_while_reads_and_writes_of_the_store_fail_at_random(
    killed: dict[str, Killed], airflow: RealAirflow
) -> None:
    batch, killing = killed["unreliable"]
    killing.result()
    batch.assert_finished(UNRELIABLE_KILLS * TWICE)
    failed = Counter(Path(airflow.env["UNRELIABLE_LOG"]).read_text().split())
    print(f"calls that failed: {dict(failed)}")
    assert failed.keys() == {"read", "write"}
    assert min(failed.values()) >= UNRELIABLE_KILLS // 4
    parts = (part.read_text() for part in (batch.folder / "receipts").glob("part-*.jsonl"))
    receipts = [json.loads(line) for part in parts for line in part.splitlines()]
    assert {receipt["line"] for receipt in receipts if receipt["status"] == "queued"} == set(range(1, len(batch.urls) + 1))
