"""What users' own DAG tests import: the fixture ``cloudstore_emulator`` into a ``conftest.py``, ``run_dag`` into a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_cloudstore.emulator.dag_runs import DagRunResult, run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator

__all__ = ["DagRunResult", "Emulator", "cloudstore_emulator", "run_dag"]


@pytest.fixture
def cloudstore_emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Run the emulator, with the Airflow connection ``cloudstore_default`` pointing to it."""
    with Emulator() as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator
