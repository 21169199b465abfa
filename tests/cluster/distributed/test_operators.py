"""Waits, single uploads, downloads and assets on a distributed Airflow while nodes and the triggerer are killed.

All DAGs run at the same time. Each fault happens once, in a fixture, and hits all that it can hit; each test checks one promise.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import WORKERS, Cluster
from tests.guarantees import Proof, guarantee

pytestmark = pytest.mark.slow

WAITS = 200  # as in dags/many_waits.py
CONTENT = os.urandom(16 * 1024 * 1024)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OLD = b"the file that is replaced"
RUNS = {"many_waits": {}, "wait_modes": {}, "lost_nodes": {"sha256": SHA256}}
CONSUMER = "use_published_on_cluster"
MODES_OF_WAITS = ("poke", "reschedule", "deferred")


@dataclass(frozen=True, slots=True)
class Stage:
    """All that runs at the same time.

    :param services: an emulator for each connection.
    :param runs: the run of each DAG.
    :param folder: where ``lost_nodes`` puts its files.
    """

    cluster: Cluster
    services: dict[str, Emulator]
    runs: dict[str, str]
    folder: Path

    def requests(self, service: str, operation: str) -> int:
        """How many requests a service has received."""
        return int(self.services[service].state()["requests"].get(operation, 0))

    def effects(self, service: str, operation: str) -> int:
        """How many of them had an effect."""
        return int(self.services[service].state()["effects"].get(operation, 0))

    def one_upload(self, service: str) -> dict[str, int]:
        """The figures of an upload that must arrive exactly once."""
        requests, effects = self.requests(service, "upload"), self.effects(service, "upload")
        return {"requests": requests, "effects": effects, "twice": effects - 1, "at_most": 0, "lost": 1 - effects}

    def states(self, dag_id: str) -> Counter[tuple[str, str]]:
        """How many instances of each task are in each state."""
        sql = "select task_id, state, count(*) from task_instance where run_id = %s group by 1, 2"
        return Counter({(task, state): count for task, state, count in self.cluster.rows(sql, self.runs[dag_id])})

    def ended(self, dag_id: str, task_id: str) -> tuple[str, int]:
        """Wait until a task is over.

        :returns: its state and its number of tries.
        """
        sql = "select state, try_number from task_instance where run_id = %s and task_id = %s and end_date is not null"
        over = f"{sql} and state in ('success', 'failed', 'skipped', 'upstream_failed')"
        rows = self.cluster.until(f"{task_id} is over", lambda: self.cluster.rows(over, self.runs[dag_id], task_id), 300)
        return rows[0][0], rows[0][1]

    def log(self, dag_id: str, task_id: str) -> str:
        """The log of a task's last try."""
        folder = self.cluster.home / "logs" / f"dag_id={dag_id}" / f"run_id={self.runs[dag_id]}" / f"task_id={task_id}"
        return max(folder.glob("attempt=?.log"), key=lambda file: file.name).read_text()

    def reported(self, asset: str) -> list[str]:
        """The files of all events of an asset."""
        sql = "select asset_event.extra from asset_event join asset on asset.id = asset_id where uri = %s order by asset_event.id"
        extras = [extra for (extra,) in self.cluster.rows(sql, f"cloudstore://files.example.com/{asset}")]
        return [extra["file_id"] for extra in extras]

    def used(self, dag_id: str) -> list[str]:
        """The files that triggered the runs of a DAG."""
        values = self.cluster.rows("select value from xcom where dag_id = %s and key = 'return_value'", dag_id)
        return [file_id for (value,) in values for file_id in value]


@pytest.fixture(scope="module")
def stage(running_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Everything runs, and nothing is broken yet."""
    cluster, folder = running_cluster, tmp_path_factory.mktemp("lost_nodes")
    folder.chmod(0o755)
    (folder / "target").write_bytes(OLD)
    with ExitStack() as stack:
        names = ("many_waits", "wait_modes", "upload", "stuck_upload", "files")
        services = {name: stack.enter_context(Emulator(fetch_delay=3600)) for name in names}
        services["stuck_upload"].fault("no_response", operation="upload")
        services["files"].put_file(CONTENT, "f1")
        services["files"].fault("drop_body", operation="download", after=len(CONTENT) // 2)
        services["files"].fault("delay", operation="download", seconds=600, times=3)
        stack.callback(cluster.heal)
        cluster.heal()
        cluster.start("w3")
        for name, service in services.items():
            cluster.connect(service.url, service.access_token, name)
        cluster.unpause(CONSUMER)
        stack.callback(cluster.pause, CONSUMER)
        runs = {dag_id: cluster.trigger(dag_id, folder=str(folder), **conf) for dag_id, conf in RUNS.items()}
        yield Stage(cluster, services, runs, folder)


@pytest.fixture(scope="module")
def nodes_lost_at(stage: Stage) -> float:
    """Both worker nodes are killed, each in the middle of two tasks, and start anew; when that was."""
    in_the_middle = {
        "an upload has no response yet": lambda: stage.effects("stuck_upload", "upload"),
        "an upload has ended": (stage.folder / "after_response").exists,
        "a file is published": (stage.folder / "publish").exists,
        "half of a download has arrived": lambda: any(part.stat().st_size for part in parts(stage)),
    }
    for what, true in in_the_middle.items():
        stage.cluster.until(what, true)
    for name in WORKERS:
        stage.cluster[name].kill()
    lost_at = time.monotonic()
    assert (stage.folder / "target").read_bytes() == OLD
    assert stage.reported("published-on-cluster") == []
    stage.services["files"].call(lambda service: service.faults.script.clear())
    stage.cluster.start(*WORKERS)
    return lost_at


def parts(stage: Stage) -> list[Path]:
    """What a download has written before it is complete."""
    return list(stage.folder.glob(".target.*.part"))


@guarantee("uploads", "the worker node that sends it is killed before the response")
def test_an_upload_without_a_response_is_not_resent_by_the_retry(stage: Stage, nodes_lost_at: float, proven: Proof) -> None:
    ended = stage.ended("lost_nodes", "before_response")
    seconds = time.monotonic() - nodes_lost_at
    assert ended == ("failed", 2)  # of three: permanent
    log = stage.log("lost_nodes", "before_response")
    assert "OutcomeUnknownError" in log
    assert "try 1 ended while sending this upload" in log
    proven(**stage.one_upload("stuck_upload"), seconds=seconds)


@guarantee("uploads", "the worker node that sends it is killed after the response")
def test_an_upload_that_was_queued_is_the_result_of_the_retry(stage: Stage, nodes_lost_at: float, proven: Proof) -> None:
    ended = stage.ended("lost_nodes", "after_response")
    seconds = time.monotonic() - nodes_lost_at
    assert ended == ("success", 2)
    (stored,) = stage.services["upload"].state()["files"]
    assert stage.cluster.xcom("lost_nodes", stage.runs["lost_nodes"], "after_response", "file_id") == stored["file_id"]
    proven(**stage.one_upload("upload"), seconds=seconds)


@guarantee("files", "the worker node that downloads a file is killed")
def test_a_file_is_complete_or_absent_when_its_node_is_lost(stage: Stage, nodes_lost_at: float, proven: Proof) -> None:
    ended = stage.ended("lost_nodes", "download")
    seconds = time.monotonic() - nodes_lost_at
    assert ended == ("success", 2)
    whole = hashlib.sha256((stage.folder / "target").read_bytes()).hexdigest() == SHA256
    assert parts(stage) == []  # the retry has removed the killed try's
    proven(requests=stage.requests("files", "download"), effects=int(whole), lost=int(not whole), seconds=seconds)


@guarantee("files", "the worker node that publishes a file in an asset event is killed")
def test_a_file_is_published_once_when_its_node_is_lost(stage: Stage, nodes_lost_at: float, proven: Proof) -> None:
    ended = stage.ended("lost_nodes", "publish")
    stage.cluster.until("the DAG that it triggers has run", lambda: stage.used(CONSUMER))
    seconds = time.monotonic() - nodes_lost_at
    assert ended == ("success", 2)
    assert set(stage.used(CONSUMER)) == {"f1"}
    events = stage.reported("published-on-cluster").count("f1")
    proven(effects=events, twice=events - 1, at_most=0, lost=int(not events), seconds=seconds)


@guarantee("waits", "the file does not come, or late: every mode, soft_fail and timeout")
def test_every_kind_of_wait_ends_as_documented(stage: Stage, proven: Proof) -> None:
    stage.cluster.until("a wait is deferred", lambda: stage.states("wait_modes")["deferred_found", "deferred"], 300)
    stage.services["wait_modes"].put_file(b"", "comes")
    expected = {
        **{f"{mode}_found": ("success", "File 'comes' is available") for mode in MODES_OF_WAITS},
        **{f"{mode}_timeout": ("failed", "FileWaitTimeoutError") for mode in MODES_OF_WAITS},
        **{f"{mode}_soft_fail": ("skipped", "") for mode in MODES_OF_WAITS},
        "link_timeout": ("failed", "FileWaitTimeoutError"),
    }
    ended = {task: stage.ended("wait_modes", task) for task in expected}
    assert ended == {task: (state, 1) for task, (state, _) in expected.items()}  # no retry, although there are two
    said = {task: words in stage.log("wait_modes", task) for task, (_, words) in expected.items()}
    assert all(said.values()), said
    requests = stage.services["wait_modes"].state()["requests"]
    assert requests.keys() == {"link"}
    proven(requests=requests["link"], lost=0)


@dataclass(frozen=True, slots=True)
class TriggererLost:
    """When the triggerer was killed, and how often it had polled until then."""

    at: float
    polls: int
    seconds: float


@pytest.fixture(scope="module")
def triggerer_lost(stage: Stage) -> TriggererLost:
    """The triggerer is killed with all deferred waits in it, and a second one takes over."""
    cluster, waits = stage.cluster, stage.services["many_waits"]
    cluster.until("all waits are deferred", lambda: stage.states("many_waits")["wait", "deferred"] == WAITS, 600)
    in_each = (
        "select triggerer_id, count(*) from task_instance join trigger on trigger.id = trigger_id"
        " where run_id = %s and triggerer_id is not null group by 1"
    )

    def counts() -> list[int]:
        return [count for _, count in cluster.rows(in_each, stage.runs["many_waits"])]

    cluster.until("one triggerer has all of them", lambda: counts() == [WAITS])
    running = "select count(*) from job where job_type = 'TriggererJob' and state = 'running'"
    before = cluster.rows(running)[0][0]
    cluster.start("triggerer-2")
    cluster.until("there are two triggerers", lambda: cluster.rows(running)[0][0] > before)
    assert counts() == [WAITS]
    cluster["triggerer"].kill()
    at, polls = time.monotonic(), stage.requests("many_waits", "link")
    for stored in waits.state()["files"]:
        waits.put_file(b"", stored["file_id"])
    cluster.until("the second triggerer finds a file", lambda: stage.effects("many_waits", "link"))
    return TriggererLost(at, polls, time.monotonic() - at)


@guarantee("waits", "the triggerer is killed with 200 deferred waits in it, and a second one takes over")
def test_no_wait_is_lost_when_another_triggerer_takes_over(stage: Stage, triggerer_lost: TriggererLost, proven: Proof) -> None:
    waits = stage.services["many_waits"]
    cluster, run_id = stage.cluster, stage.runs["many_waits"]

    def ended() -> bool:
        states = stage.states("many_waits")
        return states["wait", "success"] + states["wait", "failed"] == WAITS

    cluster.until("all waits are over", ended, 600)
    files = Counter(stored["file_id"] for stored in waits.state()["files"])
    found = Counter(stage.reported("many-waits"))
    assert stage.states("many_waits")["wait", "success"] == WAITS
    assert cluster.rows("select max(try_number) from task_instance where run_id = %s", run_id) == [(1,)]
    assert found == files  # each wait ended once
    requests, effects = waits.state()["requests"], stage.effects("many_waits", "upload")
    assert requests.keys() == {"upload", "link"}
    assert requests["upload"] == WAITS  # those of the task that uploads: a triggerer sent none
    assert triggerer_lost.polls > 0
    proven(
        requests=requests["upload"],
        effects=effects,
        twice=effects - WAITS,
        at_most=0,
        lost=len(files - found),
        seconds=triggerer_lost.seconds,
    )
