"""Batches on a distributed Airflow whose parts are lost, frozen, away or restarted: nothing is lost, and little is sent twice.

Slow: ``make test-distributed`` runs it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import WORKERS, Cluster
from scripts.processes import until
from tests.support import assert_within_bounds

pytestmark = pytest.mark.slow

RATE = 100  # this and what follows as in dags/batches.py
CONCURRENCY = 8
TWICE = CONCURRENCY + 2 * RATE  # what one interruption may send twice: what was in flight, and two seconds of sending
OUTAGES = {"api-server": 20.0, "scheduler": 5.0, "redis": 2.0, "postgres": 2.0}
"""Seconds for which each is away, in this order."""
SPACING = 3 * RATE
ENDED = ("BatchSupersededError", "BatchInterruptedError")
"""How a try ends that finds the owner file of another, or that Airflow terminates."""


@dataclass(frozen=True)
class Service:
    """An emulator with a connection of its own, and a manifest for it."""

    emulator: Emulator
    conn_id: str
    urls: list[str]
    manifest: Path

    @property
    def effects(self) -> int:
        """How many uploads the service has accepted."""
        return int(self.emulator.state()["effects"].get("upload", 0))

    def arrived(self) -> Counter[str]:
        """How often each URL has arrived."""
        return Counter(stored["source"] for stored in self.emulator.state()["files"])

    def until_arrived(self, cluster: Cluster, more_than: int) -> None:
        """Wait until more than so many URLs have arrived; components that ended meanwhile are started again."""

        def has_arrived() -> bool:
            cluster.heal()  # Airflow may have ended the task, and a component that has ended would not schedule its retry
            return len(self.arrived()) > more_than

        until(f"more than {more_than} URLs have arrived", has_arrived, 240)

    def assert_complete(self, interruptions: int = 1) -> None:
        """Fail unless every URL has arrived, and few twice, after a batch has ended."""
        arrived = self.arrived()
        assert arrived.keys() <= set(self.urls)
        twice, lost = arrived.total() - len(arrived), len(self.urls) - len(arrived)
        assert_within_bounds(twice=twice, at_most=interruptions * TWICE, lost=lost, urls=len(self.urls))


Serve = Callable[[str, int], Service]


@pytest.fixture(scope="module")
def serve(running_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts a service under a connection id, with a manifest of so many URLs."""
    with ExitStack() as stack:

        def start(conn_id: str, count: int) -> Service:
            folder = tmp_path_factory.mktemp(conn_id)
            emulator = stack.enter_context(Emulator(fetch_delay=3600))
            running_cluster.connect(emulator.url, emulator.access_token, conn_id)
            manifest = folder / "urls.txt"
            urls = [f"https://source.example/{number}" for number in range(count)]
            manifest.write_text("\n".join(urls))
            return Service(emulator, conn_id, urls, manifest)

        yield start


def trigger(cluster: Cluster, service: Service, receipts: Path) -> str:
    """Start a run of the batch for a service, and return its id."""
    return cluster.trigger("batch", manifest=str(service.manifest), conn_id=service.conn_id, receipts=str(receipts))


def until_ended(cluster: Cluster, run_id: str) -> None:
    """Wait until the first try has found that it is superseded or terminated."""

    def has_ended() -> bool:
        log = cluster.log("batch", run_id, "batch")
        return any(name in log for name in ENDED)

    cluster.until("the first try has ended", has_ended)


def test_a_batch_that_is_marked_failed_stops_and_a_cleared_one_sends_the_rest(
    running_cluster: Cluster, serve: Serve, tmp_path: Path
) -> None:
    cluster, service = running_cluster, serve("marked_failed", 2_000)
    run_id = trigger(cluster, service, tmp_path)
    cluster.until("much has arrived", lambda: service.effects > 3 * TWICE)
    cluster.api("PATCH", f"/dags/batch/dagRuns/{run_id}/taskInstances/batch", {"new_state": "failed"})
    until_ended(cluster, run_id)
    stopped = service.effects
    assert cluster.finish("batch", run_id)["batch"]["state"] == "failed"
    cluster.api("POST", "/dags/batch/clearTaskInstances", {"dry_run": False, "dag_run_id": run_id, "task_ids": ["batch"]})
    batch = cluster.finish("batch", run_id)["batch"]
    assert (batch["state"], batch["try_number"]) == ("success", 2)
    assert stopped < len(service.urls)
    service.assert_complete()


def test_a_frozen_try_stops_when_it_thaws(running_cluster: Cluster, serve: Serve, tmp_path: Path) -> None:
    cluster, service = running_cluster, serve("frozen", 1_500)
    node, other = WORKERS
    cluster[other].kill()
    run_id = trigger(cluster, service, tmp_path)
    cluster.until("much has arrived", lambda: service.effects > 2 * TWICE)
    cluster[node].freeze()
    before = service.effects
    cluster.start(other)
    cluster.until("the retry runs", lambda: service.effects > before)
    cluster[node].thaw()
    batch = cluster.finish("batch", run_id)["batch"]
    assert (batch["state"], batch["try_number"], batch["hostname"]) == ("success", 2, other)
    until_ended(cluster, run_id)
    service.assert_complete()


# Nobody restarts the lost node until the outages below.
def test_a_batch_whose_node_is_lost_resumes_on_the_other(running_cluster: Cluster, serve: Serve, tmp_path: Path) -> None:
    cluster, service = running_cluster, serve("lost_node", 1_400)
    run_id = trigger(cluster, service, tmp_path)
    cluster.until("much has arrived", lambda: service.effects > 3 * TWICE)
    lost = cluster.tasks("batch", run_id)["batch"]["hostname"]
    cluster[lost].kill()
    batch = cluster.finish("batch", run_id)["batch"]
    assert lost in WORKERS
    assert (batch["state"], batch["try_number"]) == ("success", 2)
    assert batch["hostname"] == next(name for name in WORKERS if name != lost)
    assert max(service.arrived().values()) <= 2
    service.assert_complete()


def test_a_batch_outlasts_outages(running_cluster: Cluster, serve: Serve, tmp_path: Path) -> None:
    cluster, service = running_cluster, serve("outages", RATE * (int(sum(OUTAGES.values())) + 90))
    run_id = trigger(cluster, service, tmp_path)
    for number, (name, away) in enumerate(OUTAGES.items(), start=1):
        service.until_arrived(cluster, SPACING * number)
        cluster[name].kill()
        time.sleep(away)
        before = len(service.arrived())
        cluster.heal()
        service.until_arrived(cluster, before)

    def is_over() -> bool:
        cluster.heal()  # without its database the scheduler ends, sooner or later
        try:
            return bool(cluster.api("GET", f"/dags/batch/dagRuns/{run_id}")["state"] in {"success", "failed"})
        except OSError:  # URLError is one: the API server has just lost its database
            return False

    until("the batch is over", is_over, 240)
    batch = cluster.tasks("batch", run_id)["batch"]
    # Without their database components end, sooner or later, and after an outage of Redis workers take fewer tasks for a while.
    for name in ("scheduler", "dag-processor", "triggerer", *WORKERS):
        cluster[name].kill()
    cluster.heal()
    assert batch["state"] == "success"
    service.assert_complete(interruptions=len(OUTAGES))
