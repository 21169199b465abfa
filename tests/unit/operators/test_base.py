from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import pytest

from airflow_provider_cloudstore.compat import AirflowFailException, BaseOperator
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG
from tests.dag_runs import succeed
from tests.dags import native_dags as dags
from tests.support import store_file

NO_IDS: list[Any] = [{"file_id": "f1"}, ["f1"], 1.5, True, '{"file_id": "f1"}', "['f1', 'f2']", "LazyXComSequence([2 items])"]
"""What is no id, and the text of such a thing as a template renders it; ``tests/unit/protocol/test_guards.py`` has more."""


class Index:
    """A whole number of another library, such as ``numpy.int64``."""

    def __index__(self) -> int:
        return 7


@pytest.mark.usefixtures("airflow_db")
def test_the_folder_that_is_written_is_the_folder_that_is_deleted_in_a_dag_with_native_rendering(emulator: Emulator) -> None:
    written = ["2025_01", "0x1f", "1_0", "12e5", "7_7", "42", "4_3", "44", "43"]
    others = ["202501", "31", "10", "1200000.0", "1200000", "77"]
    for folder_id in [*written, *others]:
        emulator.make_folder(folder_id)
    succeed(dags.folders)
    assert emulator.state()["effects"] == {"delete": len(written)}
    assert {"staging", *others} == set(emulator.state()["folders"])


@pytest.mark.usefixtures("airflow_db")
def test_so_are_files_urls_targets_and_connections(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{dags.ID}", emulator.connection)
    store_file(emulator, file_id=dags.ID)
    source = emulator.serve(b"content", "1_0")
    succeed(dags.files, {"source": source, "folder": str(tmp_path)})
    assert [token["file_id"] for token in emulator.state()["tokens"]] == [dags.ID] * 4
    assert [stored["source"] for stored in emulator.state()["files"]] == ["put", source]
    assert [path.name for path in tmp_path.iterdir()] == ["1_0"]


@pytest.mark.usefixtures("airflow_db")
def test_a_list_of_urls_stays_a_list(emulator: Emulator, tmp_path: Path) -> None:
    for name in ("1_0", "2_0"):
        source = emulator.serve(b"content", name).rpartition("/")[0]
    run = succeed(dags.urls, {"source": source, "folder": str(tmp_path)})
    counts = {name: run.values[name]["queued"] for name in ("output", "pull", "each")}
    assert counts == {"output": 2, "pull": 2, "each": 1}


def each_operator(file_id: Any) -> list[BaseOperator]:
    return [
        *(DownloadLinkOperator(task_id="link", file_id=file_id, wait_for_file=wait, deferrable=wait) for wait in (False, True)),
        DownloadLinkOperator(task_id="link", file_id=file_id, wait_for_file=True, deferrable=False),
        DownloadFileOperator(task_id="file", file_id=file_id, target="target", wait_for_file=True),
        DeleteFolderOperator(task_id="delete", folder_id=file_id),
        *(FileAvailableSensor(task_id="wait", file_id=file_id, mode=mode) for mode in ("poke", "reschedule")),
        FileAvailableSensor(task_id="wait", file_id=file_id, deferrable=True),
    ]


@pytest.mark.parametrize("value", NO_IDS, ids=str)
def test_what_is_no_id_is_refused_before_anything_is_sent_or_waited_for(emulator: Emulator, value: Any) -> None:
    for operator in each_operator(value):
        with pytest.raises(InvalidInputError, match="nothing was sent") as refused:
            operator.execute({})
        assert isinstance(refused.value, AirflowFailException)
        assert "Pass " in str(refused.value)
    assert emulator.state()["requests"] == {}


def test_the_file_that_was_waited_for_is_the_one_that_a_resumed_wait_is_about(emulator: Emulator) -> None:
    store_file(emulator, file_id="f1")
    event = {"status": "available", "file_id": "f1"}
    assert FileAvailableSensor(task_id="wait", file_id="rendered anew").execute_complete({}, event) == "f1"
    DownloadLinkOperator(task_id="link", file_id="rendered anew", wait_for_file=True).execute_complete({}, event)
    assert [token["file_id"] for token in emulator.state()["tokens"]] == ["f1"]


@pytest.mark.parametrize(
    "context",
    [{}, None, MagicMock(), MagicMock(spec=dict), {"ti": MagicMock()}],
    ids=["{}", "None", "mock", "mock of a dict", "mock of a task instance"],
)
def test_execute_works_with_the_contexts_that_unit_tests_pass(emulator: Emulator, tmp_path: Path, context: Any) -> None:
    store_file(emulator, file_id="f1")
    source = emulator.serve(b"x")
    tasks: list[Any] = [
        RemoteUrlUploadOperator(task_id="upload", url=source),
        RemoteUrlUploadOperator(task_id="wait", url=source, wait_for_file=True, poll_interval=0.05, retries=2),
        RemoteUrlBatchUploadOperator(task_id="batch", urls=[source], receipts=str(tmp_path / "receipts")),
        FileAvailableSensor(task_id="wait", file_id="f1"),
        FileAvailableSensor(task_id="wait", file_id="f1", deferrable=True),
        DownloadLinkOperator(task_id="link", file_id="f1", wait_for_file=True),
        DownloadFileOperator(task_id="file", file_id="f1", target=str(tmp_path / "file")),
        DeleteFolderOperator(task_id="delete", folder_id="staging"),
    ]
    for task in tasks:
        task.execute(context)
    assert {name: count for name, count in emulator.state()["effects"].items() if name != "link"} == {"upload": 3, "delete": 1}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("value", [Decimal(7), UUID(int=7), Index(), 7], ids=lambda value: type(value).__name__)
def test_an_id_that_is_no_text_reaches_the_guards_as_it_is(value: Any, native: bool) -> None:
    dag = DAG("ids", schedule=None, start_date=datetime(2026, 1, 1), render_template_as_native_obj=native)
    for operator in each_operator(value):
        operator.render_template_fields({}, dag.get_template_env())
        assert getattr(operator, next(iter(operator.template_fields))) is value
