from __future__ import annotations

import copy
import gzip
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowException, ObjectStoragePath
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.support import context


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", running.connection)
        yield running


def urls(count: int) -> list[str]:
    return [f"https://source.example/{number}?sig=hunter{number}" for number in range(count)]


def arrived(emulator: Emulator) -> list[str]:
    return sorted(stored["source"] for stored in emulator.state()["files"])


def rendered(wanted: Any, receipts: str) -> RemoteUrlBatchUploadOperator:
    """An operator after Airflow has rendered its templates."""
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls=wanted, receipts=receipts, url_column="link")
    operator.render_template_fields({})
    return operator


def test_a_list_of_a_template_is_queued_and_shown_by_its_length(emulator: Emulator, tmp_path: Path) -> None:
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls="{{ params.urls | tojson }}", receipts="{{ params.receipts }}")
    operator.render_template_fields({"params": {"urls": urls(30), "receipts": str(tmp_path)}})
    assert operator.urls == "30 URLs"
    assert operator.execute(context()) == {
        "total": 30, "queued": 30, "failed": 0, "unknown": 0, "skipped": 0, "unsent": 0, "queued_earlier": 0,
        "receipts": str(tmp_path),
        "failures": [],
    }  # fmt: skip
    assert arrived(emulator) == sorted(urls(30))


@pytest.mark.parametrize("kind", [str, Path, ObjectStoragePath])
def test_a_gzip_manifest_with_a_named_column_is_queued_with_receipts(
    emulator: Emulator, tmp_path: Path, kind: Callable[..., Any]
) -> None:
    manifest, receipts = tmp_path / "urls.csv.gz", tmp_path / "receipts"
    manifest.write_bytes(gzip.compress("\n".join(["id,link", *(f"1,{url}" for url in urls(30))]).encode()))
    summary = rendered(kind(str(manifest)), kind(str(receipts))).execute(context())
    assert (summary["queued"], json.loads(json.dumps(summary))["receipts"]) == (30, str(receipts))
    assert arrived(emulator) == sorted(urls(30))
    reported = [json.loads(line) for part in receipts.glob("part-*.jsonl") for line in part.read_text().splitlines()]
    files = {stored["file_id"]: stored["source"].partition("?")[0] + "?***" for stored in emulator.state()["files"]}
    assert {one["file_id"]: one["url"] for one in reported} == files
    assert {one["response"]["_status"] for one in reported} == {"success"}


@pytest.mark.parametrize(
    "more",
    [
        {"max_concurrency": 501},
        {"requests_per_second": 0},
        {"retry_unknown_outcome": "no"},
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_in_the_dag_file(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(more))} (must be|is)"):
        RemoteUrlBatchUploadOperator(task_id="t", urls=[], receipts=None, **more)


@pytest.mark.parametrize("wanted", ["https://h/?sig=hunter2", "['https://h/?sig=hunter2']", "None"])
def test_urls_that_are_neither_list_nor_path_are_refused_when_they_are_rendered_and_not_shown(wanted: str) -> None:
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls=wanted, receipts=None)
    with pytest.raises(exceptions.InvalidInputError, match=r"^urls ") as refused:
        operator.render_template_fields({})
    assert "hunter2" not in f"{refused.value} {operator.urls}"
    assert (refused.value.permanent, refused.value.__suppress_context__) == (True, True)


def test_a_cleared_task_sends_only_what_failed_and_nothing_once_all_is_queued(emulator: Emulator, tmp_path: Path) -> None:
    pushed = dict[str, Any]()
    emulator.fault("status", status=400, times=1)
    with pytest.raises(exceptions.BatchFailedError) as failed:
        rendered([*urls(50), "file:///x?sig=hunter2"], str(tmp_path)).execute(context(pushed))
    assert failed.value.permanent
    assert (pushed["return_value"]["failed"], len(pushed["return_value"]["failures"])) == (2, 2)
    assert "hunter" not in f"{failed.value} {pushed}"
    (mark,) = tmp_path.glob("batch-*.json")
    assert json.loads(mark.read_text())["scope"] == ["dag", "run", "t", "-1"]
    summary = rendered(urls(50), str(tmp_path)).execute(context(pushed, try_number=2, max_tries=1))
    assert (summary["queued"], summary["queued_earlier"]) == (50, 49)
    assert rendered(urls(50), str(tmp_path)).execute(context(try_number=3))["queued_earlier"] == 50
    assert arrived(emulator) == sorted(urls(50))
    assert emulator.state()["requests"] == {"upload": 51}


def test_receipts_are_required_and_none_means_no_memory(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((TypeError, AirflowException), match="receipts"):
        RemoteUrlBatchUploadOperator(task_id="t", urls=[])  # type: ignore[call-arg]
    for number in (1, 2):
        summary = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(5), receipts=None).execute(context(try_number=number))
        assert (summary["queued"], summary["queued_earlier"], summary["receipts"]) == (5, 0, None)
        assert len(arrived(emulator)) == 5 * number
    assert caplog.messages.count("receipts=None: nothing is remembered, so a retry sends every URL again.") == 2


@pytest.mark.parametrize(("name", "words"), [("missing.csv", "does not exist"), ("empty.txt", "is empty, or a folder")])
def test_a_manifest_that_cannot_be_read_is_refused_by_name_and_nothing_is_sent(
    emulator: Emulator, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "empty.txt").write_text("# no URL\n")
    with pytest.raises(exceptions.InvalidInputError, match=words) as refused:
        RemoteUrlBatchUploadOperator(task_id="t", urls=f"{tmp_path}/{name}", receipts=None).execute(context())
    assert refused.value.permanent
    assert emulator.state()["requests"] == {}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("receipts", "relative path"),
        (Path("receipts"), "relative path"),
        ("", "receipts is empty"),
        (None, "receipts is 'None'"),  # as Airflow renders a template with native types
        ("nope://b/r", "no filesystem is installed for 'nope'"),
    ],
)
def test_a_receipts_folder_that_no_worker_would_find_is_refused_and_not_created(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(5), receipts="{{ params.place }}" if place is None else place)
    operator.receipts = place
    with pytest.raises(exceptions.InvalidInputError, match=words):
        operator.execute(context())
    assert list(tmp_path.iterdir()) == []
    assert emulator.state()["requests"] == {}


def test_a_batch_that_the_service_ends_pushes_its_counts(emulator: Emulator, tmp_path: Path) -> None:
    pushed: dict[str, Any] = {}
    emulator.fault("status", status=429, headers={"Retry-After": "901"}, times=0)
    batch = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(3), receipts=None, max_concurrency=1)
    with pytest.raises(exceptions.BatchInterruptedError, match="With receipts, the task resumes"):
        batch.execute(context(pushed))
    assert (pushed["return_value"]["total"], pushed["return_value"]["unsent"]) == (3, 3)


def test_a_batch_ends_three_seconds_before_execution_timeout_does(emulator: Emulator) -> None:
    def ring(*_: Any) -> None:
        raise TimeoutError("execution_timeout rang")

    emulator.fault("status", status=429, times=0)
    previous = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 3.3)
        with pytest.raises(exceptions.BatchInterruptedError, match="execution_timeout is nearly over"):
            RemoteUrlBatchUploadOperator(task_id="t", urls=urls(3), receipts=None).execute(context())
    finally:
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert 1.5 < left < 3


def test_a_task_that_is_killed_before_it_runs_sends_nothing(emulator: Emulator) -> None:
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls=urls(50), receipts=None)
    copy.copy(operator).on_kill()
    with pytest.raises(exceptions.BatchInterruptedError):
        operator.execute(context())
    assert emulator.state()["requests"] == {}
