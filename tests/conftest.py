"""An Airflow of the tests' own: its home is a temporary folder, set before anything imports Airflow.

Under pytest-xdist every worker is a process that imports this file: each has a home and a database of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

for _name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[_name]
_HOME = tempfile.mkdtemp(prefix="cloudstore-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
_DAGS = Path(_HOME) / "dags"
_DAGS.mkdir()
_TESTS = Path(__file__).resolve().parent
for _name, _folder in {"tests": _TESTS / "dags", "examples": _TESTS.parent / "dags_examples"}.items():
    (_DAGS / _name).symlink_to(_folder)  # Airflow runs only what lies in its DAG folder
os.environ |= {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME}/airflow.db",
    "NO_PROXY": "127.0.0.1,localhost",
}

from airflow_provider_cloudstore.emulator.fixtures import cloudstore_emulator  # noqa: E402  (a fixture for users, used here)
from airflow_provider_cloudstore.emulator.runner import Emulator  # noqa: E402
from scripts.airflow_home import migrate  # noqa: E402

__all__ = ["cloudstore_emulator"]

_SLOW = 1800
"""Seconds after which a slow test counts as hanging."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW))


def _scope(nodeid: str) -> str:
    """What one worker of pytest-xdist runs: a process's first task costs it five seconds of imports, so one runs them all."""
    return "tasks" if nodeid.startswith(("tests/assets/", "tests/emulator/test_dag_runs.py", "tests/operators/")) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _scope
    return scheduler


@pytest.fixture(scope="session")
def airflow_db() -> Path:
    """The database of the tests' Airflow: a copy of one that is migrated once for the virtual environment."""
    migrated = Path(sys.prefix) / "migrated"
    migrate(migrated)
    return Path(shutil.copy(migrated / "airflow.db", Path(_HOME) / "airflow.db"))


@pytest.fixture
def emulator(cloudstore_emulator: Emulator) -> Emulator:
    """The emulator, under a short name."""
    return cloudstore_emulator
