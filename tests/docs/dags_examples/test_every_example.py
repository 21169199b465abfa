"""What holds for every file in dags_examples/: one click runs it, and it is never green when a request failed."""

from __future__ import annotations

import runpy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.up import example_inputs
from tests.dag_runs import DagRunResult, run_dag

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EXAMPLES = sorted((ROOT / "dags_examples").glob("*.py"))
of_each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
PATIENCE = timedelta(minutes=1)
"""For how long all retries of a task may delay the news that a first click failed."""


def click(example: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> tuple[DagRunResult, set[str]]:
    """Run an example with the defaults that ``make up`` gives it, against an emulator of its own.

    :param fails: the operation that the service refuses: every download, else only the first request.
    :returns: the result, and the operations that the service was asked for.
    """
    with Emulator() as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        folder.mkdir()
        for name, value in example_inputs(emulator, folder).items():
            monkeypatch.setenv(name, value)
        if fails:  # a link is replaced when one download fails
            emulator.fault("status", status=400, operation=fails, times=0 if fails == "download" else 1)
        run = run_dag(runpy.run_path(str(example))["dag"])
        return run, set(emulator.state()["requests"])


@of_each_example
def test_one_click_runs_it_and_no_refused_request_leaves_it_green(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, operations = click(example, tmp_path / "healthy", monkeypatch)
    assert run.state == "success", str(run)
    assert set(run.tasks.values()) == {"success"}, str(run)
    assert operations
    green = {
        operation
        for operation in sorted(operations)
        if click(example, tmp_path / operation, monkeypatch, fails=operation)[0].state != "failed"
    }
    assert not green


@of_each_example
def test_it_is_described_and_its_first_failure_is_soon_known(example: Path) -> None:
    dag: Any = runpy.run_path(str(example))["dag"]
    assert dag.dag_id == f"example_{example.stem}"
    assert {"cloudstore", "example"} <= set(dag.tags)
    assert dag.doc_md
    for task in dag.tasks:
        assert (task.retries or 0) * task.retry_delay <= PATIENCE, task.task_id


@of_each_example
def test_it_starts_paused_if_time_starts_it(example: Path) -> None:
    dag: Any = runpy.run_path(str(example))["dag"]
    of_assets = {"asset_condition", "dataset_condition"}  # Airflow 3, Airflow 2
    if dag.timetable.can_be_scheduled and not any(getattr(dag.timetable, name, None) for name in of_assets):
        assert dag.is_paused_upon_creation
        assert not dag.catchup
    else:
        assert not dag.is_paused_upon_creation  # a click on it, or on the DAG before it, would start nothing


@of_each_example
def test_it_has_no_default_that_a_service_may_know(example: Path) -> None:
    params = runpy.run_path(str(example))["dag"].params.dump()
    assert not {name: value for name, value in params.items() if value and not name.startswith("target")}
