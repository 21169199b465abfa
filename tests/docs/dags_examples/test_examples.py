"""The examples, run on an Airflow against the emulator: one click runs each, and none is green when a request failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.up import example_inputs
from tests.dag_runs import DagRunResult, run_dag
from tests.doc_blocks import ROOT, example

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]  # make test-in-time

EXAMPLES = sorted((ROOT / "dags_examples").glob("*.py"))
of_each_example = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)


def click(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> tuple[DagRunResult, set[str]]:
    """Run an example with the defaults of ``make up``, and return the result and the operations that its service was asked for.

    :param fails: the operation that the service refuses: every download and link, else only the first request.
    """
    with Emulator() as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        folder.mkdir()
        for name, value in example_inputs(emulator, folder).items():
            monkeypatch.setenv(name, value)
        if fails:  # a link is replaced when one download fails, and a wait polls again
            emulator.fault("status", status=400, operation=fails, times=0 if fails in ("download", "link") else 1)
        run = run_dag(example(file)["dag"])
        return run, set(emulator.state()["requests"])


@of_each_example
def test_one_click_runs_it_and_no_refused_request_leaves_it_green(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, operations = click(file, tmp_path / "healthy", monkeypatch)
    assert run.state == "success", str(run)
    assert set(run.tasks.values()) == {"success"}, str(run)
    assert operations
    green = {
        operation
        for operation in sorted(operations)
        if click(file, tmp_path / operation, monkeypatch, fails=operation)[0].state != "failed"
    }
    assert not green


@of_each_example
def test_it_has_no_default_that_a_service_may_know(file: Path) -> None:
    params = example(file)["dag"].params.dump()
    assert not {name: value for name, value in params.items() if value and not name.startswith("target")}


def test_staged_etl_loads_no_file_with_another_checksum_and_cleans_up(emulator: Emulator, tmp_path: Path) -> None:
    conf = {"source_url": emulator.serve(b"content"), "expected_sha256": "0" * 64, "target_folder": str(tmp_path)}
    emulator.put_file(b"of another DAG", "theirs")
    run = run_dag(example(ROOT / "dags_examples" / "staged_etl.py")["dag"], conf)
    assert (run.state, run.tasks["download"], run.tasks["clean_up"]) == ("failed", "failed", "success"), str(run)
    assert list(tmp_path.iterdir()) == []
    state = emulator.state()
    assert ([one["file_id"] for one in state["files"]], state["folders"]) == (["theirs"], ["staging"])
