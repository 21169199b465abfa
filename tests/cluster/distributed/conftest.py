"""A distributed Airflow, started once; each test gets it whole, with an emulator of its own as the record of what arrived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.cluster import Cluster, missing

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, whatever state a test has left it in."""
    if reason := missing():
        pytest.skip(f"no cluster can be run here: {reason}")
    home = tmp_path_factory.mktemp("cluster")
    dags = home / "dags"
    dags.mkdir()
    for name, folder in {"tests": HERE / "dags", "examples": HERE.parents[2] / "dags_examples"}.items():
        (dags / name).symlink_to(folder)
    (home / "config").mkdir()
    (home / "config" / "airflow_local_settings.py").symlink_to(HERE / "policy.py")
    with Cluster(home, dags) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all of its components; what a test killed or froze is mended after it."""
    yield running_cluster
    running_cluster.heal()
