"""One Airflow at DEBUG for all tests that need no settings of their own, and one emulator, which each test gets empty."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import code_of, for_this_airflow
from tests.real_airflow import AIRFLOW_2, RealAirflow

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def service() -> Iterator[Emulator]:
    """The service of the connection ``cloudstore_default``; what is uploaded does not come by itself."""
    with Emulator(fetch_delay=3600) as running:
        yield running


@pytest.fixture
def emulator(service: Emulator) -> Emulator:
    def reset(running: Any) -> None:
        for state in (running.store.requests, running.store.effects, running.store.files, running.store.tokens):
            state.clear()
        running.store.fetch_delay = 3600

    service.call(reset)
    return service


@pytest.fixture(scope="session")
def airflow(service: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    """An Airflow with the DAGs of several tests and those of the pages that they are about."""
    work = tmp_path_factory.mktemp("airflow")
    dags = work / "dags"
    shutil.copytree(HERE / "canary" / "dags", dags)
    (dags / "share_report.py").write_text(for_this_airflow(code_of("README.md-0")))
    if not AIRFLOW_2:
        (dags / "approve_and_delete.py").write_text(code_of("approve-a-deletion.md-0"))
    env = {
        "AIRFLOW_CONN_CLOUDSTORE_DEFAULT": service.connection,
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
        "CANARY_FOLDER": str(work),
    }
    with RealAirflow(work / "home", dags, **env) as running:
        running.start_all()
        yield running
