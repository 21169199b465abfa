"""Uploads and a download on a distributed Airflow whose worker nodes are killed.

All of it runs at the same time, and the nodes are killed once, in a fixture; each test checks one promise.
Slow: ``make test-distributed`` runs it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import WORKERS, Cluster

pytestmark = pytest.mark.slow

CONTENT = os.urandom(16 * 1024 * 1024)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OLD = b"the file that is replaced"
DAG = "lost_nodes"
SERVICES = ("upload", "stuck_upload", "files", "polled", "deferred")


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of the DAG whose worker nodes were killed, in the middle of its tasks, and started anew."""

    cluster: Cluster
    services: dict[str, Emulator]
    run_id: str
    folder: Path

    def ended(self, task_id: str) -> tuple[str, int]:
        """Wait until a task is over, and return its state and its number of tries."""
        sql = "select state, try_number from task_instance where run_id = %s and task_id = %s and state in ('success', 'failed')"
        state, tries = self.cluster.until(f"{task_id} is over", lambda: self.cluster.rows(sql, self.run_id, task_id), 300)[0]
        return state, tries

    def uploads(self, service: str) -> tuple[int, int]:
        """How many uploads a service has received, and how many had an effect."""
        state = self.services[service].state()
        return state["requests"]["upload"], state["effects"]["upload"]

    def parts(self) -> list[Path]:
        """What a download has written before it is complete."""
        return list(self.folder.glob(".*.part"))


@pytest.fixture(scope="module")
def stage(running_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    cluster, folder = running_cluster, tmp_path_factory.mktemp("lost_nodes")
    folder.chmod(0o755)
    (folder / "target").write_bytes(OLD)
    with ExitStack() as stack:
        services = {name: stack.enter_context(Emulator(fetch_delay=3600)) for name in SERVICES}
        services["stuck_upload"].fault("no_response", operation="upload")
        services["files"].put_file(CONTENT, "f1")
        services["files"].fault("drop_body", operation="download", after=len(CONTENT) // 2)
        services["files"].fault("delay", operation="download", seconds=600, times=3)
        cluster.heal()
        stack.callback(cluster.heal)
        for name, service in services.items():
            cluster.connect(service.url, service.access_token, name)
        stage = Stage(cluster, services, cluster.trigger(DAG, folder=str(folder), sha256=SHA256), folder)
        in_the_middle = {
            "an upload has no response yet": lambda: services["stuck_upload"].state()["effects"].get("upload"),
            "an upload has ended": (folder / "after_response").exists,
            "an upload is polled": lambda: services["polled"].state()["requests"].get("link", 0) > 2,
            "an upload is deferred": lambda: cluster.tasks(DAG, stage.run_id)["deferred"]["state"] == "deferred",
            "half of a download has arrived": lambda: any(part.stat().st_size for part in stage.parts()),
        }
        for what, true in in_the_middle.items():
            cluster.until(what, true)
        for name in (*WORKERS, "triggerer"):
            cluster[name].kill()
        assert (folder / "target").read_bytes() == OLD
        services["files"].call(lambda service: service.faults.clear())
        cluster.start(*WORKERS, "triggerer")
        for name in ("polled", "deferred"):
            (queued,) = services[name].state()["files"]
            services[name].put_file(CONTENT, queued["file_id"])
        yield stage


def test_an_upload_without_a_response_is_not_resent_by_the_retry(stage: Stage) -> None:
    assert stage.ended("before_response") == ("failed", 2)  # of three: permanent
    assert "OutcomeUnknownError" in stage.cluster.log(DAG, stage.run_id, "before_response", 2)
    assert stage.uploads("stuck_upload") == (1, 1)


def test_an_upload_that_was_queued_is_the_result_of_the_retry(stage: Stage) -> None:
    assert stage.ended("after_response") == ("success", 2)
    (stored,) = stage.services["upload"].state()["files"]
    assert stage.cluster.xcom(DAG, stage.run_id, "after_response") == stored["file_id"]
    assert stage.uploads("upload") == (1, 1)


def test_a_file_is_complete_or_absent_when_its_node_is_lost(stage: Stage) -> None:
    assert stage.ended("download") == ("success", 2)
    assert (stage.folder / "target").read_bytes() == CONTENT


@pytest.mark.parametrize(("task_id", "service", "tries"), [("polling", "polled", 2), ("deferred", "deferred", 1)])
def test_an_upload_that_waits_is_sent_once_though_its_worker_or_its_triggerer_is_lost(
    stage: Stage, task_id: str, service: str, tries: int
) -> None:
    assert stage.ended(task_id) == ("success", tries)
    (stored,) = stage.services[service].state()["files"]
    assert stage.cluster.xcom(DAG, stage.run_id, task_id) == stored["file_id"]
    assert stage.cluster.xcom(DAG, stage.run_id, task_id, "upload")["file_id"] == stored["file_id"]
    assert stage.services[service].state()["requests"]["upload"] == 1
