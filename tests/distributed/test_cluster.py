"""The provider on a distributed Airflow: tasks of one run on different machines, and a machine that is lost.

Slow: ``make test-distributed`` runs it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from scripts.cluster import WORKERS, Cluster, EmulatorProcess
from scripts.source_server import serving
from tests.guarantees import Proof, guarantee

pytestmark = pytest.mark.slow

RATE = 200  # as in dags/batch_on_cluster.py
CONCURRENCY = 8
TWICE = CONCURRENCY + 2 * RATE  # what one lost node may send twice: what was in flight, and two seconds of sending


def test_the_staged_pipeline_runs_across_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    content = os.urandom(1024 * 1024)
    digest = hashlib.sha256(content).hexdigest()
    with EmulatorProcess(tmp_path, "--fetch-delay", "3") as emulator, serving(content) as source:
        cluster.connect(emulator.url, emulator.access_token)
        run_id = cluster.trigger(
            "staged_etl",
            source_url=source,
            expected_sha256=digest,
            staging_folder_id="staging",
            target_folder=str(tmp_path / "shared"),
        )
        tasks = cluster.finish("staged_etl", run_id)
        state = emulator.state()
    assert {name: task["state"] for name, task in tasks.items()} == dict.fromkeys(
        ("upload", "download", "load", "clean_up"), "success"
    )
    assert {name: task["hostname"] for name, task in tasks.items()} == {
        "upload": "w1",
        "download": "w2",
        "load": "w1",
        "clean_up": "w2",
    }
    assert {task["try_number"] for task in tasks.values()} == {1}
    assert tasks["download"]["trigger"] is None
    assert cluster.xcom("staged_etl", run_id, "load") == {"bytes": len(content), "sha256": digest}
    assert (state["effects"]["upload"], state["effects"]["delete"]) == (1, 1)
    assert state["requests"]["upload"] == 1
    assert (state["folders"], state["files"], state["tokens"]) == ([], [], [])


@guarantee("batch", "the worker node that runs it is lost")
def test_a_batch_whose_node_is_lost_resumes_on_the_other_with_nothing_lost_and_little_sent_twice(
    cluster: Cluster, tmp_path: Path, proven: Proof
) -> None:
    urls = [f"https://source.example/{number}" for number in range(4_000)]
    manifest = tmp_path / "urls.txt"
    manifest.write_text("\n".join(urls))
    with EmulatorProcess(tmp_path, "--fetch-delay", "3600") as emulator:
        cluster.connect(emulator.url, emulator.access_token)
        run_id = cluster.trigger("batch_on_cluster", manifest=str(manifest))
        cluster.until("half of the batch has arrived", lambda: len(emulator.state()["files"]) > len(urls) / 2)
        lost = cluster.tasks("batch_on_cluster", run_id)["batch"]["hostname"]
        cluster[lost].kill()
        lost_at, before = time.monotonic(), len(emulator.state()["files"])
        cluster.until("the batch goes on", lambda: len(emulator.state()["files"]) > before)
        silence = time.monotonic() - lost_at
        batch = cluster.finish("batch_on_cluster", run_id)["batch"]
        state = emulator.state()
    assert lost in WORKERS
    assert (batch["state"], batch["try_number"]) == ("success", 2)
    assert batch["hostname"] == next(name for name in WORKERS if name != lost)
    arrived = Counter(stored["source"] for stored in state["files"])
    assert max(arrived.values()) <= 2
    proven(
        requests=state["requests"]["upload"],
        effects=sum(arrived.values()),
        twice=sum(arrived.values()) - len(urls),
        at_most=TWICE,
        lost=len(set(urls) - arrived.keys()),
        seconds=silence,
    )
