"""SIGKILL to the tasks' processes at random moments, on a whole Airflow: every URL arrives, and few arrive twice.

Slow: ``make test-kill`` runs it.
"""

from __future__ import annotations

import json
import os
import random
import signal
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
KILLS = {"often": 5 if AIRFLOW_2 else 25, "unreliable": 10}
"""For each task; the newest Airflow has the long tests."""
RATE = 200  # this and the 8 as in dags/killed.py
TWICE = 8 + 2 * RATE  # what one kill may send twice: what was in flight, and two seconds of sending
needs_airflow_3 = pytest.mark.skipif(AIRFLOW_2, reason="its log does not say when a try ended, and it has fewer tasks")


@dataclass(frozen=True)
class Batch:
    """A batch in a task of a running Airflow, with a folder for its manifest, the id of its process, and its receipts."""

    airflow: RealAirflow
    emulator: Emulator
    folder: Path
    urls: list[str]

    def pid(self) -> int:
        """The id of the try's process, as soon as it runs; then it is forgotten."""
        # A try that was killed before it wrote its owner file would have sent nothing, and the next one refuses to: see the docs.
        pid, receipts = self.folder / "pid", self.folder / "receipts"
        self.airflow.until(f"a try of {self.folder.name} runs", lambda: pid.exists() and list(receipts.glob("batch-*")))
        found = int(pid.read_text())
        pid.unlink()
        return found

    def kill(self, times: int) -> None:
        """Kill one try after the other, each after a random number of uploads: at most those of two seconds."""
        dice = random.Random(1)
        for _ in range(times):
            self._kill_after(dice.randrange(2 * RATE))

    def _kill_after(self, uploads: int) -> None:
        pid, before = self.pid(), self.arrived().total()
        self.airflow.until(f"{self.folder.name} sends", lambda: self.arrived().total() >= before + uploads)
        os.kill(pid, signal.SIGKILL)

    def arrived(self) -> Counter[str]:
        """How often each of its URLs has arrived."""
        sources = (stored["source"] for stored in self.emulator.state()["files"])
        return Counter(source for source in sources if f"/{self.folder.name}/" in source)

    def finish(self, at_most: int) -> int:
        """Wait for its end, check that nothing is lost and few uploads were sent twice, and return its number of tries."""
        ends = "select state, try_number from task_instance where task_id = ? and state in ('success', 'failed')"
        ((state, tries),) = self.airflow.until(f"{self.folder.name} ends", lambda: self.airflow.rows(ends, self.folder.name), 300)
        arrived = self.arrived()
        twice, lost = arrived.total() - len(arrived), len(self.urls) - len(arrived)
        assert state == "success"
        assert arrived.keys() <= set(self.urls)
        assert_within_bounds(twice=twice, at_most=at_most, lost=lost, urls=len(self.urls), tries=tries)
        return int(tries)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Batch]]:
    """The batches on one Airflow, where they run at the same time."""
    root = tmp_path_factory.mktemp("killed")
    with Emulator(fetch_delay=3600) as emulator:
        env = {
            "AIRFLOW_CONN_CLOUDSTORE_DEFAULT": emulator.connection,
            "KILLED_FOLDER": str(root),
            "PYTHONPATH": str(DAGS.parents[3]),
            "UNRELIABLE_LOG": str(root / "failures"),
        }
        with RealAirflow(root / "home", DAGS, **env) as airflow:
            found = {}
            for name in (*KILLS, "terminated"):
                count = 1_500 + 300 * KILLS.get(name, 0)  # more than the tries that are killed can finish
                urls = [f"https://source.example/{name}/{number}" for number in range(count)]
                found[name] = Batch(airflow, emulator, root / name, urls)
                (root / name).mkdir()
                (root / name / "urls.txt").write_text("\n".join(urls))
            for name in ["scheduler"] if AIRFLOW_2 else ["api-server", "scheduler", "dag-processor"]:
                airflow.start(name)
            airflow.trigger("killed")
            yield found


@pytest.fixture(scope="module")
def killed(batches: dict[str, Batch]) -> Iterator[dict[str, Future[None]]]:
    """Kills the processes of some while the tests run."""
    with ThreadPoolExecutor() as threads:
        yield {name: threads.submit(batches[name].kill, KILLS[name]) for name in (["often"] if AIRFLOW_2 else KILLS)}


@needs_airflow_3
@pytest.mark.usefixtures("killed")  # at the same time
def test_sigterm_saves_the_progress_and_the_retry_goes_on_with_nothing_sent_twice(batches: dict[str, Batch]) -> None:
    batch = batches["terminated"]
    pid = batch.pid()
    batch.airflow.until("uploads arrive", lambda: len(batch.arrived()) > 300)
    sent = datetime.now(UTC)
    os.kill(pid, signal.SIGTERM)
    assert batch.finish(at_most=0) == 2
    log = next(text for file, text in batch.airflow.logs() if "task_id=terminated" in str(file) and file.name == "attempt=1.log")
    ended = next(json.loads(line)["timestamp"] for line in log.splitlines() if "Task failed with exception" in line)
    took = (datetime.fromisoformat(ended) - sent).total_seconds()
    print(f"ended {took:.1f} s after SIGTERM")
    assert took < 2


def test_after_many_kills_every_url_has_arrived_and_few_twice(batches: dict[str, Batch], killed: dict[str, Future[None]]) -> None:
    killed["often"].result()
    assert batches["often"].finish(KILLS["often"] * TWICE) > KILLS["often"]


@needs_airflow_3
def test_the_same_holds_while_reads_and_writes_of_the_store_fail_at_random(
    batches: dict[str, Batch], killed: dict[str, Future[None]]
) -> None:
    batch = batches["unreliable"]
    killed["unreliable"].result()
    assert batch.finish(KILLS["unreliable"] * TWICE) > KILLS["unreliable"]
    failed = Counter((batch.folder.parent / "failures").read_text().split())
    print(f"calls that failed: {dict(failed)}")
    assert failed.keys() == {"read", "write"}
    assert min(failed.values()) >= 3
    parts = (part.read_text() for part in (batch.folder / "receipts").glob("part-*.jsonl"))
    receipts = [json.loads(line) for part in parts for line in part.splitlines()]
    assert {receipt["line"] for receipt in receipts if receipt["status"] == "queued"} == set(range(1, len(batch.urls) + 1))
