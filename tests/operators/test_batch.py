from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.protocol import errors
from tests.dags import operator_dags as dags
from tests.support import rendered_fields, run_dag

pytestmark = pytest.mark.usefixtures("airflow_db")


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


def urls(count: int) -> list[str]:
    return [f"https://source.example/{number}?sig=hunter{number}" for number in range(count)]


def arrived(emulator: Emulator) -> list[str]:
    return sorted(stored["source"] for stored in emulator.state()["files"])


def run(wanted: Any, receipts: str = "") -> tuple[str, Any]:
    state, _, values = run_dag(dags.batch, {"urls": wanted, "receipts": receipts})
    return state, values["batch"]


def test_a_list_of_a_template_is_queued_and_shown_by_its_length(emulator: Emulator) -> None:
    state, summary = run(urls(30))
    assert state == "success"
    assert summary == {
        "total": 30, "queued": 30, "failed": 0, "unknown": 0, "skipped": 0, "receipts": "", "failures": [],
    }  # fmt: skip
    assert arrived(emulator) == sorted(urls(30))
    assert rendered_fields("batch", "batch")[-1]["urls"] == "30 URLs"


def test_a_gzip_manifest_with_a_named_column_is_queued_with_receipts(emulator: Emulator, tmp_path: Path) -> None:
    manifest = tmp_path / "urls.csv.gz"
    manifest.write_bytes(gzip.compress("\n".join(["id,link", *(f"1,{url}" for url in urls(30))]).encode()))
    state, summary = run(str(manifest), str(tmp_path / "receipts"))
    assert state == "success"
    assert (summary["queued"], summary["receipts"]) == (30, str(tmp_path / "receipts"))
    assert arrived(emulator) == sorted(urls(30))
    told = "".join(part.read_text() for part in (tmp_path / "receipts").iterdir())
    assert len(told.splitlines()) == 30
    assert "hunter" not in told
    assert json.loads(told.splitlines()[0])["url"].endswith("?***")


def test_failures_fail_the_task_after_all_the_rest_and_are_told(emulator: Emulator) -> None:
    emulator.fault("drop_after", times=2)
    state, summary = run([*urls(20), "file:///x", "None"])
    assert state == "failed"
    assert (summary["total"], summary["queued"], summary["failed"], summary["unknown"]) == (22, 18, 2, 2)
    assert len(summary["failures"]) == 4
    assert len(arrived(emulator)) == 20


def test_an_empty_list_is_a_batch_of_none(emulator: Emulator) -> None:
    state, summary = run([])
    assert (state, summary["total"]) == ("success", 0)


@pytest.mark.parametrize(
    "more", [{"max_concurrency": 0}, {"requests_per_second": 0}, {"requests_per_second": -1}, {"on_error": "ignore"}]
)
def test_an_argument_that_makes_no_sense_is_refused_in_the_dag_file(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|on_error is"):
        RemoteUrlBatchUploadOperator(task_id="t", urls=[], **more)


@pytest.mark.parametrize("wanted", ["https://h/?sig=hunter2", "[https://h/?sig=hunter2]", "None"])
def test_urls_that_are_neither_list_nor_path_are_refused_and_not_shown(emulator: Emulator, wanted: str) -> None:
    state, summary = run(wanted)
    assert (state, summary) == ("failed", None)
    assert "hunter2" not in str(rendered_fields("batch", "batch")[-1])
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize("missing", ["None", "null", "[]", "<NA>", " none "])
def test_a_missing_folder_for_receipts_is_refused_and_creates_none(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(urls(1), missing)[0] == "failed"
    assert list(tmp_path.iterdir()) == []
    assert emulator.state()["requests"] == {}


class Store(dict[str, Any]):
    """A task state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        del self[key]


def test_progress_of_another_manifest_is_recognised_before_anything_is_sent(emulator: Emulator) -> None:
    store, pushed = Store(), {}
    context: Any = {
        "task_state_store": store,
        "ti": type("TI", (), {"xcom_push": lambda self, key, value: pushed.update({key: value})})(),
    }
    emulator.fault("status", status=401, operation="upload", times=0)
    first = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(50))
    with pytest.raises(errors.TokenRefused):
        first.execute(context)
    emulator.call(lambda service: service.faults.script.clear())
    assert store["cloudstore_batch"]["watermark"] == 0
    store["cloudstore_batch"] |= {"ahead": {"3": "0" * 16}, "counts": {"queued": 1}}  # of a manifest with another fourth line
    again = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(50))
    summary = again.execute(context)
    assert summary["queued"] == 50
    assert arrived(emulator) == sorted(urls(50))
    assert pushed["return_value"] == summary
    assert store == {}
