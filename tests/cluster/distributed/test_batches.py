"""Batches on a distributed Airflow whose parts are lost, frozen, away or restarted: nothing is lost, and little is sent twice.

Slow: ``make test-distributed`` runs it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import WORKERS, Cluster
from scripts.processes import until
from tests.support import assert_within_bounds

pytestmark = pytest.mark.slow

RATE = 100  # this and what follows as in dags/batches.py
CONCURRENCY = 8
PART_RATE = 25
PART_CONCURRENCY = 4
PARTS = 4
TWICE = CONCURRENCY + 2 * RATE  # what one interruption may send twice: what was in flight, and two seconds of sending
TWICE_OF_PART = PART_CONCURRENCY + 2 * PART_RATE
RUNS = 3
STORM = 30
"""Requests that the service answers with 429."""
OUTAGES = {"api-server": 20.0, "scheduler": 5.0, "redis": 2.0, "postgres": 2.0}
"""Seconds for which each is away, in this order."""
SPACING = 3 * RATE
ENDED = "BatchInterruptedError"
"""How a try ends that finds the mark of another, or that Airflow terminates."""


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

    @property
    def digests(self) -> set[str]:
        """The URLs as receipts name them."""
        return {hashlib.sha256(url.encode()).hexdigest() for url in self.urls}

    def until_arrived(self, more_than: int) -> None:
        """Wait until more than so many URLs have arrived, whatever becomes of Airflow's components."""
        # Airflow may have ended the task: then its retry has to be scheduled, on a machine that other tests keep busy.
        until(f"more than {more_than} URLs have arrived", lambda: len(self.arrived()) > more_than, 300)

    def figures(self, at_most: int, copies: int = 1) -> dict[str, int]:
        """The figures of a batch that has ended.

        :param copies: how often each URL was asked for.
        """
        state, arrived = self.emulator.state(), self.arrived()
        assert arrived.keys() <= set(self.urls)
        return {
            "requests": state["requests"]["upload"],
            "effects": state["effects"]["upload"],
            "twice": sum(max(0, arrived[url] - copies) for url in self.urls),
            "lost": sum(max(0, copies - arrived[url]) for url in self.urls),
            "at_most": at_most,
        }


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


def conf_of(service: Service, receipts: Path) -> dict[str, str]:
    """The parameters of a run."""
    return {"manifest": str(service.manifest), "conn_id": service.conn_id, "receipts": str(receipts)}


def queued(receipts: Path) -> dict[tuple[str, str], list[str]]:
    """The digests of the URLs that a folder of receipts calls queued, by run id and map index."""
    found = {}
    for mark in receipts.glob("batch-*.json"):
        _, run_id, _, map_index = json.loads(mark.read_text())["scope"]
        parts = receipts.glob(f"part-{mark.stem.removeprefix('batch-')}-*.jsonl")
        lines = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        found[run_id, map_index] = [line["digest"] for line in lines if line["status"] == "queued"]
    return found


def seconds_until(cluster: Cluster, what: str, true: Callable[[], Any], since: float) -> float:
    """Wait for an event, and return the seconds from ``since`` (of the monotonic clock)."""
    cluster.until(what, true)
    return time.monotonic() - since


def until_ended(cluster: Cluster, dag_id: str, run_id: str, task_id: str) -> None:
    """Wait until the first try has found that it is superseded or terminated."""
    cluster.until(f"the first try of {task_id} has ended", lambda: ENDED in cluster.log(dag_id, run_id, task_id))


@dataclass(frozen=True)
class SideBySide:
    """Runs whose faults disturb only themselves, so that they run at the same time."""

    cluster: Cluster
    runs: Service
    receipts: Path
    run_ids: list[str]
    marked: Service
    marked_run: str
    timed_out: Service
    timed_out_run: str


@pytest.fixture(scope="module")
def side_by_side(running_cluster: Cluster, serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    """All of these runs, triggered; those of one DAG can end only once all of them run."""
    cluster, receipts = running_cluster, tmp_path_factory.mktemp("receipts")
    runs, marked, timed_out = serve("runs", 400), serve("marked_failed", 2_000), serve("timed_out", 1_200)
    conf = conf_of(runs, receipts)
    runs.emulator.fault("status", status=429, operation="upload", times=0)
    for _ in range(2):
        cluster.trigger("batch_of_each_run", **conf)
    day = "2026-01-01T00:00:00Z"
    backfill = {"dag_id": "batch_of_each_run", "from_date": day, "to_date": day, "dag_run_conf": conf}
    cluster.api("POST", "/backfills", backfill)
    run_ids = [one["dag_run_id"] for one in cluster.api("GET", "/dags/batch_of_each_run/dagRuns")["dag_runs"]]
    cluster.until(
        "all runs wait for the service",
        lambda: [one["state"] for run in run_ids for one in cluster.instances("batch_of_each_run", run)] == ["running"] * RUNS,
    )
    runs.emulator.call(lambda service: service.faults.script.clear())
    others = tmp_path_factory.mktemp("others")  # two batches in one folder
    marked_run = cluster.trigger("batch", **conf_of(marked, others))
    timed_out_run = cluster.trigger("batch_with_timeout", **conf_of(timed_out, others))
    return SideBySide(cluster, runs, receipts, run_ids, marked, marked_run, timed_out, timed_out_run)


def test_a_batch_that_is_marked_failed_stops_and_a_cleared_one_sends_the_rest(side_by_side: SideBySide) -> None:
    cluster, service, run_id = side_by_side.cluster, side_by_side.marked, side_by_side.marked_run
    cluster.until("much has arrived", lambda: service.effects > 3 * TWICE)
    cluster.api("PATCH", f"/dags/batch/dagRuns/{run_id}/taskInstances/batch", {"new_state": "failed"})
    marked_at = time.monotonic()
    until_ended(cluster, "batch", run_id, "batch")
    ended = time.monotonic() - marked_at
    stopped = service.effects
    print(f"the try ended {ended:.1f} s after it was marked; {stopped:,} had been sent")
    assert cluster.finish("batch", run_id)["batch"]["state"] == "failed"
    cluster.api("POST", "/dags/batch/clearTaskInstances", {"dry_run": False, "dag_run_id": run_id, "task_ids": ["batch"]})
    cleared_at = time.monotonic()
    resumed = seconds_until(cluster, "it goes on", lambda: service.effects > stopped, cleared_at)
    batch = cluster.finish("batch", run_id)["batch"]
    assert (batch["state"], batch["try_number"]) == ("success", 2)
    assert stopped < len(service.urls)
    assert_within_bounds(**service.figures(TWICE), seconds=resumed)


def test_a_batch_that_needs_several_tries_goes_on_where_the_last_one_stopped(side_by_side: SideBySide) -> None:
    cluster, service, run_id = side_by_side.cluster, side_by_side.timed_out, side_by_side.timed_out_run
    batch = cluster.finish("batch_with_timeout", run_id)["batch"]
    logs = [cluster.log("batch_with_timeout", run_id, "batch", number + 1) for number in range(batch["try_number"])]
    assert batch["state"] == "success"
    assert len(logs) > 2
    assert all("execution_timeout is nearly over" in log for log in logs[:-1])
    summary = cluster.xcom("batch_with_timeout", run_id, "batch")
    assert (summary["queued"], summary["queued_earlier"] > 0) == (len(service.urls), True)
    assert_within_bounds(**service.figures(TWICE))


def test_runs_of_the_same_batch_do_not_touch_each_other(side_by_side: SideBySide) -> None:
    cluster, service = side_by_side.cluster, side_by_side.runs
    batches = [cluster.finish("batch_of_each_run", run_id)["batch"] for run_id in side_by_side.run_ids]
    assert len(batches) == RUNS
    assert {(batch["state"], batch["try_number"]) for batch in batches} == {("success", 1)}
    assert max(batch["start_date"] for batch in batches) < min(batch["end_date"] for batch in batches)
    recorded = queued(side_by_side.receipts)
    assert {run_id for run_id, _ in recorded} == set(side_by_side.run_ids)
    assert all(sorted(digests) == sorted(service.digests) for digests in recorded.values())
    assert_within_bounds(**service.figures(0, copies=RUNS))


def test_the_mapped_batches_of_a_lost_node_resume_with_the_new_token(
    running_cluster: Cluster, serve: Serve, tmp_path: Path
) -> None:
    cluster, service, dag_id = running_cluster, serve("parts", 1_600), "batch_in_parts"
    for number in range(PARTS):
        Path(f"{service.manifest}.{number}").write_text("\n".join(service.urls[number::PARTS]))
    emulator = service.emulator
    cluster.api("POST", "/pools", {"name": "uploads", "slots": PARTS})
    run_id = cluster.trigger(dag_id, **conf_of(service, tmp_path))
    cluster.until("all batches run", lambda: {one["state"] for one in cluster.instances(dag_id, run_id)} == {"running"})
    cluster.until("they send", lambda: service.effects > PARTS * PART_RATE)
    before = service.effects
    emulator.fault("status", status=429, headers={"Retry-After": "1"}, operation="upload", times=STORM)
    cluster.until("much has arrived", lambda: service.effects > before + 3 * PARTS * PART_RATE)
    killed = [one["map_index"] for one in cluster.instances(dag_id, run_id) if one["hostname"] == "w1"]
    assert len(killed) == PARTS / 2

    cluster["w1"].kill()
    killed_at = time.monotonic()
    old, new = emulator.access_token, "the-new-access-token"
    emulator.call(lambda running: setattr(running, "access_token", f"{old}\n{new}"))
    cluster.connect(emulator.url, new, service.conn_id)
    emulator.call(lambda running: setattr(running, "access_token", new))

    def resumed() -> bool:
        batches = {one["map_index"]: one for one in cluster.instances(dag_id, run_id)}
        return all(batches[index]["try_number"] == 2 and batches[index]["hostname"] == "w2" for index in killed)

    silence = seconds_until(cluster, "both batches run on the other node", resumed, killed_at)
    cluster.until("all has arrived", lambda: len(service.arrived()) == len(service.urls))
    cluster.finish(dag_id, run_id)
    batches = cluster.instances(dag_id, run_id)
    assert {one["state"] for one in batches} == {"success"}
    assert {one["map_index"] for one in batches if one["try_number"] > 1} == set(killed)
    figures = service.figures(TWICE_OF_PART * len(killed))
    refused = figures["requests"] - figures["effects"] - STORM
    print(f"{refused} requests with the old token")
    assert refused >= PARTS - len(killed)
    recorded = [digest for digests in queued(tmp_path).values() for digest in digests]
    assert set(recorded) == service.digests
    assert_within_bounds(**figures, seconds=silence)


Figures = dict[str, float]


def test_a_frozen_try_stops_when_it_thaws(running_cluster: Cluster, serve: Serve, tmp_path: Path) -> None:
    cluster, service = running_cluster, serve("frozen", 1_500)
    other = next((name for name in WORKERS if not cluster[name].runs), "w2")
    cluster[other].kill()
    [node] = {*WORKERS} - {other}
    run_id = cluster.trigger("batch", **conf_of(service, tmp_path))
    cluster.until("much has arrived", lambda: service.effects > 2 * TWICE)
    cluster[node].freeze()
    frozen_at, before = time.monotonic(), service.effects
    cluster.start(other)
    silence = seconds_until(cluster, "the retry runs", lambda: service.effects > before, frozen_at)
    cluster[node].thaw()
    batch = cluster.finish("batch", run_id)["batch"]
    assert (batch["state"], batch["try_number"], batch["hostname"]) == ("success", 2, other)
    until_ended(cluster, "batch", run_id, "batch")
    assert_within_bounds(**service.figures(TWICE), seconds=silence)


# Nobody restarts the lost node until the outages below.
def test_a_batch_whose_node_is_lost_resumes_on_the_other(running_cluster: Cluster, serve: Serve, tmp_path: Path) -> None:
    cluster, service = running_cluster, serve("lost_node", 1_400)
    run_id = cluster.trigger("batch", **conf_of(service, tmp_path))
    cluster.until("much has arrived", lambda: service.effects > 3 * TWICE)
    lost = cluster.tasks("batch", run_id)["batch"]["hostname"]
    cluster[lost].kill()
    lost_at, before = time.monotonic(), service.effects
    silence = seconds_until(cluster, "the batch goes on", lambda: service.effects > before, lost_at)
    batch = cluster.finish("batch", run_id)["batch"]
    assert lost in WORKERS
    assert (batch["state"], batch["try_number"]) == ("success", 2)
    assert batch["hostname"] == next(name for name in WORKERS if name != lost)
    assert max(service.arrived().values()) <= 2
    assert_within_bounds(**service.figures(TWICE), seconds=silence)


@pytest.fixture(scope="module")
def outages(running_cluster: Cluster, serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    """One batch that goes on through all outages, one after the other: the figures of each, until the next one begins."""
    cluster, service = running_cluster, serve("outages", RATE * (int(sum(OUTAGES.values())) + 90))
    run_id = cluster.trigger("batch", **conf_of(service, tmp_path_factory.mktemp("outages")))
    began, seconds = [], []
    for number, (name, away) in enumerate(OUTAGES.items(), start=1):
        service.until_arrived(SPACING * number)
        began.append(service.figures(TWICE))
        cluster[name].kill()
        time.sleep(away)
        before = len(service.arrived())
        cluster.heal()
        ended_at = time.monotonic()
        service.until_arrived(before)
        seconds.append(time.monotonic() - ended_at)

    def is_over() -> bool:
        cluster.heal()  # without its database the scheduler ends, sooner or later
        try:
            return bool(cluster.api("GET", f"/dags/batch/dagRuns/{run_id}")["state"] in {"success", "failed"})
        except OSError:  # URLError is one: the API server has just lost its database
            return False

    until("the batch is over", is_over)
    batch = cluster.tasks("batch", run_id)["batch"]
    # Without their database components end, sooner or later, and after an outage of Redis workers take fewer tasks for a while.
    for name in ("scheduler", "dag-processor", "triggerer", *WORKERS):
        cluster[name].kill()
    cluster.heal()
    print(f"try {batch['try_number']}")
    assert batch["state"] == "success"
    ended = [*began[1:], service.figures(TWICE)]
    found = {}
    for name, first, last, recovery in zip(OUTAGES, began, ended, seconds, strict=True):
        counted = {key: last[key] - first[key] for key in ("requests", "effects", "twice")}
        found[name] = {**counted, "at_most": TWICE, "lost": ended[-1]["lost"], "seconds": recovery}
    return found


@pytest.mark.parametrize(
    "component",
    [
        pytest.param("api-server"),
        pytest.param("scheduler"),
        pytest.param("redis"),
        pytest.param("postgres"),
    ],
)
def test_a_batch_outlasts_an_outage(component: str, outages: dict[str, Figures]) -> None:
    assert_within_bounds(**outages[component])
