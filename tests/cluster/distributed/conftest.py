"""A distributed Airflow, started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.cluster import Cluster, missing

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, in the state that a test has left it in."""
    if reason := missing():
        pytest.skip(f"no cluster can be run here: {reason}")
    home = tmp_path_factory.mktemp("cluster")
    (home / "config").mkdir()
    (home / "config" / "airflow_local_settings.py").symlink_to(HERE.parents[1] / "preload.py")
    with Cluster(home, HERE / "dags") as cluster:
        yield cluster
