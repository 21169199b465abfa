"""Gives the tests an Airflow of their own; its home is a temporary folder, set before anything imports Airflow.

Each pytest-xdist worker is a process that imports this file, with a home and a database of its own.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

gc.disable()  # until the tests are collected

for _name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[_name]
_HOME = tempfile.mkdtemp(prefix="cloudstore-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
_DAGS = Path(_HOME) / "dags"
_TESTS = Path(__file__).resolve().parent
# dag.test() of Airflow 3.3 parses and stores a whole bundle on every call: one for each file, and one for doc_blocks.py.
_BUNDLES = ["blocks"]
(_DAGS / "blocks").mkdir(parents=True)
for _file in [*(_TESTS / "dags").glob("*.py"), *(_TESTS.parent / "dags_examples").glob("*.py")]:
    (_DAGS / _file.stem).mkdir()
    (_DAGS / _file.stem / _file.name).symlink_to(_file)
    _BUNDLES.append(_file.stem)
_LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
os.environ |= {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
        [{"name": name, "classpath": _LOCAL, "kwargs": {"path": str(_DAGS / name)}} for name in _BUNDLES]
    ),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME}/airflow.db",
    "NO_PROXY": "127.0.0.1,localhost",
}

from airflow_provider_cloudstore.emulator.fixtures import cloudstore_emulator  # noqa: E402  (a fixture for users)
from airflow_provider_cloudstore.emulator.runner import Emulator  # noqa: E402
from scripts.airflow_home import migrate  # noqa: E402

__all__ = ["cloudstore_emulator"]


def _runs_a_dag(item: pytest.Item) -> bool:
    return "airflow_db" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what runs DAGs, in one process: the first task of a process costs five seconds of imports."""
    items.sort(key=lambda item: not _runs_a_dag(item))
    for item in items:
        seconds = None
        if item.get_closest_marker("slow"):
            seconds = 1800
        elif _runs_a_dag(item):
            seconds = 600  # alone up to 44 s (Airflow 3.2.2)
            item.add_marker(pytest.mark.xdist_group("tasks"))
        if seconds and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(seconds))


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from every garbage collection of the run."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def airflow_db() -> Path:
    """The database of the tests' Airflow: a copy of one that is migrated once per virtual environment."""
    migrated = Path(sys.prefix) / "migrated"
    migrate(migrated)
    return Path(shutil.copy(migrated / "airflow.db", Path(_HOME) / "airflow.db"))


@pytest.fixture
def emulator(cloudstore_emulator: Emulator) -> Emulator:
    """The emulator, under a short name."""
    return cloudstore_emulator


@pytest.fixture(autouse=True)
def _forget_masked_secrets() -> Iterator[None]:
    """Let no test wait for the secrets of those before it: for each new one, Airflow's masker recompiles one pattern of all."""
    yield
    for name in ("airflow.sdk._shared.secrets_masker", "airflow._shared.secrets_masker"):
        if reset := getattr(sys.modules.get(name), "reset_secrets_masker", None):  # older versions have none
            reset()
