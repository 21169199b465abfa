from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions, metrics
from airflow_provider_cloudstore.compat import TaskDeferred
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.metrics import count_batch, count_download, count_request
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator, RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.protocol import attempts, waiting
from airflow_provider_cloudstore.protocol.operations import DeleteFolder
from tests.support import context, settings, store_file

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "operate" / "metrics.md"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What Airflow is told to count."""
    counter: Counter[str] = Counter()

    class Stats:
        @staticmethod
        def incr(name: str, count: int = 1) -> None:
            counter[name.removeprefix("cloudstore.")] += count

    monkeypatch.setattr(metrics, "Stats", Stats)
    return counter


def test_every_request_counts_by_operation_and_outcome(
    emulator: Emulator, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_INITIAL_BACKOFF", 0.01)
    store_file(emulator)
    emulator.fault("status", status=429, headers={"Retry-After": "0"}, times=2)
    emulator.fault("status", status=500)
    with CloudStoreHook() as hook:
        hook.create_download_link("f1")
        with pytest.raises(exceptions.NotFoundError):
            hook.delete_folder("gone")
        hook.poll_file("late")
        hook.request("GET", "/folder/list", {"folder_id": "staging"})
        with pytest.raises(exceptions.NotFoundError):
            hook.request("POST", "/file/rename", {"file_id": "f0", "name": "x"})
    assert counted == {
        "requests.download_link.rate_limited": 2,
        "requests.download_link.server_failure": 1,
        "requests.download_link.success": 1,
        "requests.delete_folder.not_found": 1,
        "requests.download_link.not_found": 1,
        "requests.other.success": 1,  # one name, whatever the path
        "requests.other.not_found": 1,
    }


def test_airflows_own_client_counts_and_one_that_fails_fails_no_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        count_download(5)
        assert caplog.text == ""

        class Stats:
            @staticmethod
            def incr(name: str, count: int = 1) -> None:
                raise ConnectionRefusedError("https://metrics/?secret")

        monkeypatch.setattr(metrics, "Stats", Stats)
        count_download(5)
    assert "Could not count cloudstore.downloads.bytes (ConnectionRefusedError)" in caplog.text
    assert "secret" not in caplog.text


def test_a_wait_counts_once_by_its_end(emulator: Emulator, counted: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ON_WORKER_SECONDS", 0.0)

    def ends(kind: type[BaseException] | None, event: dict[str, Any] | None = None, **more: Any) -> dict[str, int]:
        task: Any = DownloadLinkOperator(task_id="w", file_id="f1", wait_for_file=True, poll_interval=0.05, **more)
        counted.clear()
        if kind:
            with pytest.raises(kind):
                task.execute({})
        else:
            task.execute_complete({}, event, "f1")
        return {name: count for name, count in counted.items() if name.startswith("waits")}

    assert ends(TaskDeferred, deferrable=True) == {}
    assert ends(exceptions.FileWaitTimeoutError, timeout=0.1) == {"waits.timeout": 1}
    emulator.fault("status", status=400)
    assert ends(exceptions.BadRequestError) == {"waits.failed": 1}
    store_file(emulator)
    assert ends(None, {"status": "available"}) == {"waits.available": 1}


def test_a_batch_counts_what_became_of_its_urls(emulator: Emulator, counted: Counter[str]) -> None:
    emulator.fault("status", operation="upload", status=400)
    urls = [f"ftp://127.0.0.1:9/{number}" for number in (0, 1, 2, 3, 1)]
    operator = RemoteUrlBatchUploadOperator(task_id="b", urls=urls, receipts=None, max_concurrency=1)
    operator.render_template_fields({})
    with pytest.raises(exceptions.BatchFailedError):
        operator.execute(context())
    assert counted == {
        "batch.queued": 3,
        "batch.failed": 1,
        "batch.skipped": 1,
        "requests.remote_upload.success": 3,
        "requests.remote_upload.rejected": 1,
    }


def test_two_tries_of_a_batch_count_each_upload_once(counted: Counter[str]) -> None:
    first = {"total": 10, "queued": 6, "failed": 1, "unknown": 0, "skipped": 0, "queued_earlier": 0}
    count_batch(first, final=False)
    assert counted == {"batch.queued": 6}
    count_batch({**first, "queued": 9, "queued_earlier": 6}, final=True)
    assert counted == {"batch.queued": 9, "batch.failed": 1}


def test_a_download_counts_the_bytes_that_it_received_also_when_it_fails(
    emulator: Emulator, counted: Counter[str], tmp_path: Path
) -> None:
    data = os.urandom(300_000)
    emulator.put_file(data, "f1")
    emulator.fault("drop_body", operation="download", after=70_000)
    emulator.fault("status", operation="download", status=402)
    with CloudStoreHook() as hook:
        with pytest.raises(exceptions.RequestRejectedError):
            hook.download("f1", tmp_path / "f")
        assert counted["downloads.bytes"] == 70_000
        hook.download("f1", tmp_path / "f")
    assert counted["downloads.bytes"] == 70_000 + len(data)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (exceptions.RateLimitError, "rate_limited"),
        (exceptions.ServiceUnreachableError, "unreachable"),
        (exceptions.TransientServiceError, "server_failure"),
        (exceptions.OutcomeUnknownError, "outcome_unknown"),
        (exceptions.ServiceError, "service_error"),
        (exceptions.InvalidResponseError, "invalid_response"),
        (exceptions.NotFoundError, "not_found"),
        (exceptions.AuthenticationError, "unauthorized"),
        (exceptions.PermissionDeniedError, "rejected"),
        (exceptions.ConfigurationError, "error"),
    ],
)
def test_every_end_of_a_request_has_a_name_that_is_documented(
    counted: Counter[str], error: type[exceptions.CloudStoreError] | None, outcome: str
) -> None:
    count_request(DeleteFolder(settings(), "a"), error("x") if error else object())
    assert counted == {f"requests.delete_folder.{outcome}": 1}
    assert f"- `{outcome}`: " in DOCS.read_text()
