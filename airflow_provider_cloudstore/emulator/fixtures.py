"""A pytest fixture for users' own DAG tests: import ``cloudstore_emulator`` from here into a ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator


@pytest.fixture
def cloudstore_emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The running emulator, with the Airflow connection ``cloudstore_default`` set to it."""
    with Emulator() as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator
