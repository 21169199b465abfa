"""The provider on a distributed Airflow: tasks of one run on different machines.

Slow: ``make test-distributed`` runs it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import Cluster, EmulatorProcess

pytestmark = pytest.mark.slow


def test_the_staged_pipeline_runs_across_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    content = os.urandom(1024 * 1024)
    digest = hashlib.sha256(content).hexdigest()
    with EmulatorProcess(tmp_path, "--fetch-delay", "3") as emulator, Emulator() as web:
        cluster.connect(emulator.url, emulator.access_token)
        run_id = cluster.trigger(
            "example_staged_etl",
            source_url=web.serve(content),
            expected_sha256=digest,
            staging_folder_id="staging",
            target_folder=str(tmp_path / "shared"),
        )
        tasks = cluster.finish("example_staged_etl", run_id)
        state = emulator.state()
    assert {name: task["state"] for name, task in tasks.items()} == dict.fromkeys(
        ("upload", "download", "load", "clean_up", "finished"), "success"
    )
    assert {name: task["hostname"] for name, task in tasks.items()} == {
        "upload": "w1",
        "download": "w2",
        "load": "w1",
        "clean_up": "w2",
        "finished": "w1",
    }
    assert {task["try_number"] for task in tasks.values()} == {1}
    assert tasks["download"]["trigger"] is None
    assert cluster.xcom("example_staged_etl", run_id, "load") == {"bytes": len(content), "sha256": digest}
    assert (state["effects"]["upload"], state["effects"]["delete"]) == (1, 1)
    assert state["requests"]["upload"] == 1
    assert (state["folders"], state["files"], state["tokens"]) == ([], [], [])
