"""The DAG of docs/guides/stage-and-clean-up.md in a full Airflow, with the page's pool: one source does not have its file.

Slow: ``make test-airflow`` runs it on three Airflows.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import ROOT, blocks, commands, for_this_airflow
from tests.real_airflow import RealAirflow

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "guides" / "stage-and-clean-up.md"
DAG = "stage_on_yetishare"
DAG_FILE = PAGE.with_name(f"{DAG}.py")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(service="yetishare") as running:
        yield running


@pytest.fixture
def empty() -> Iterator[Emulator]:
    """A host without files, which says so with HTTP 404."""
    with Emulator() as running:
        yield running


@pytest.fixture
def airflow(emulator: Emulator, tmp_path: Path) -> Iterator[RealAirflow]:
    dags = tmp_path / "dags"
    dags.mkdir()
    code = DAG_FILE.read_text().replace("poke_interval=60, timeout=3600", "poke_interval=2, timeout=20")
    (dags / f"{DAG}.py").write_text(for_this_airflow(code))
    with RealAirflow(tmp_path / "home", dags) as running:
        running.store({"cloudstore_default": json.loads(emulator.connection)}, {})
        lines = [shlex.split(command) for block in blocks(PAGE, "console") for command in commands(block)]
        (pool,) = [words[1:] for words in lines if words[:2] == ["airflow", "pools"]]
        running.cli(*pool)
        running.start_all()
        yield running


def test_a_run_deletes_its_own_folder_although_one_of_five_files_never_arrives(
    airflow: RealAirflow, emulator: Emulator, empty: Emulator
) -> None:
    emulator.put_file(b"of another run", "theirs", "another-run")
    urls = [emulator.serve(b"x", f"{number}.csv") for number in range(4)]
    run_id = airflow.trigger(DAG, source_urls=[*urls, f"{empty.url}/gone.csv"])  # HTTP 404
    states = airflow.finish(run_id)
    ended = {task_id: state for (task_id, _), state in states.items()}
    assert [states["upload", number] for number in range(5)] == ["success"] * 5
    assert (ended["files_active"], ended["use"]) == ("failed", "upstream_failed")
    assert (ended["clean_up"], ended["finished"]) == ("success", "upstream_failed")
    log = "".join(text for file, text in airflow.logs() if "task_id=files_active" in str(file))
    assert "4 of 5 files are there" in log
    state = emulator.state()
    files = sorted(
        (one["source"].rpartition("/")[2], one["state"]) for one in state["files"] if one["folder_id"] != "another-run"
    )
    assert files == [*((f"{number}.csv", "trash") for number in range(4)), ("gone.csv", "trash")]
    assert len({one["folder_id"] for one in state["files"]}) == 2
    assert state["folders"] == ["another-run"]
    assert [one["state"] for one in state["files"] if one["file_id"] == "theirs"] == ["stored"]
    assert (state["effects"]["upload"], state["effects"]["delete"]) == (5, 1)
