from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions, metrics
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import (
    BatchFailedError,
    FileWaitTimeoutError,
    NotFoundError,
    RequestRejectedError,
)
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.metrics import count_batch, outcome_of
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator, RemoteUrlBatchUploadOperator
from airflow_provider_cloudstore.protocol import calls
from tests.dag_runs import run_dag
from tests.dags import asset_dags
from tests.support import activate, store_file

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "operate" / "metrics.md"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.01)


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


def test_every_request_counts_by_operation_and_outcome(emulator: Emulator, counted: Counter[str]) -> None:
    store_file(emulator)
    emulator.fault("status", status=429, headers={"Retry-After": "0"}, times=2)
    emulator.fault("status", status=500)
    with CloudStoreHook() as hook:
        hook.create_download_link("f1")
        with pytest.raises(NotFoundError):
            hook.delete_folder("gone")
        hook.poll_file("late")
    assert counted == {
        "requests.download_link.rate_limited": 2,
        "requests.download_link.server_failure": 1,
        "requests.download_link.success": 1,
        "requests.delete_folder.not_found": 1,
        "requests.download_link.not_found": 1,
    }
    assert counted.total() == sum(emulator.state()["requests"].values())


def test_a_metrics_client_that_fails_fails_no_call(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stats:
        @staticmethod
        def incr(name: str, count: int = 1) -> None:
            raise ConnectionRefusedError("https://metrics/?secret")

    monkeypatch.setattr(metrics, "Stats", Stats)
    with CloudStoreHook() as hook:
        hook.upload_from_url("ftp://127.0.0.1:9/f")
    assert emulator.state()["requests"] == {"upload": 1}
    assert "Could not count cloudstore.requests.remote_upload.success (ConnectionRefusedError)" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("airflow_db")
def test_a_deferred_wait_counts_once_by_its_end(emulator: Emulator, counted: Counter[str]) -> None:
    store_file(emulator)
    activate(asset_dags.deferred_sensor, asset_dags.REPORT)
    assert run_dag(asset_dags.deferred_sensor).state == "success"
    assert {name: count for name, count in counted.items() if name.startswith("waits")} == {"waits.available": 1}


def test_a_wait_that_ends_without_the_file_says_so(emulator: Emulator, counted: Counter[str]) -> None:
    context: Any = {}
    for file_id in ("late", "f1"):
        wait = DownloadLinkOperator(task_id="w", file_id=file_id, wait_for_file=True, poll_interval=0.05, timeout=0.2)
        with pytest.raises(FileWaitTimeoutError):
            wait.execute(context)
    assert counted["waits.timeout"] == 2


def test_a_batch_counts_what_became_of_its_urls(emulator: Emulator, counted: Counter[str]) -> None:
    emulator.fault("status", operation="upload", status=400)
    pushed: Any = type("Ti", (), {"xcom_push": lambda *_, **__: None, "try_number": 1, "max_tries": 0})()
    urls = [f"ftp://127.0.0.1:9/{number}" for number in (0, 1, 2, 3, 1)]
    operator = RemoteUrlBatchUploadOperator(task_id="b", urls=urls, receipts=None, max_concurrency=1)
    operator.render_template_fields({})
    context: Any = {"ti": pushed}
    with pytest.raises(BatchFailedError):
        operator.execute(context)
    assert counted == {
        "batch.queued": 3,
        "batch.failed": 1,
        "batch.skipped": 1,
        "requests.remote_upload.success": 3,
        "requests.remote_upload.rejected": 1,
    }


ONE_REQUEST = """
try:
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils
except ImportError:
    pass  # before Airflow 3.2 the first counter reads the configuration
else:  # as the task runner does when it starts
    if hasattr(stats, "initialize"):
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    else:  # Airflow 3.2
        stats.Stats.initialize(factory=stats_utils.get_stats_factory(stats.Stats))
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
with CloudStoreHook() as hook:
    hook.poll_file("late")
    hook.upload_from_url("ftp://127.0.0.1:9/f")
"""


def test_a_statsd_server_receives_the_counters(emulator: Emulator) -> None:
    pytest.importorskip("statsd", reason="the client library of Airflow's StatsD backend is not installed")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        metrics = {"ON": "True", "HOST": "127.0.0.1", "PORT": str(server.getsockname()[1]), "PREFIX": "airflow-tests"}
        environment = os.environ | {f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in metrics.items()}
        subprocess.run([sys.executable, "-c", ONE_REQUEST], env=environment, check=True)
        wanted = ["requests.download_link.not_found", "requests.remote_upload.success"]
        received: list[str] = []
        while len(received) < len(wanted):
            line = server.recv(4096).decode()
            received += [line] if ".cloudstore." in line else []
    assert received == [f"airflow-tests.cloudstore.{name}:1|c" for name in wanted]


def test_a_download_counts_the_bytes_that_it_received(emulator: Emulator, counted: Counter[str], tmp_path: Path) -> None:
    data = os.urandom(300_000)
    emulator.put_file(data, "f1")
    emulator.fault("drop_body", operation="download", after=100_000)
    with CloudStoreHook() as hook:
        hook.download("f1", tmp_path / "f")
        assert counted == {"requests.download_link.success": 2, "downloads.bytes": len(data)}
        counted.clear()
        emulator.fault("drop_body", operation="download", after=70_000)
        emulator.fault("status", operation="download", status=402)
        with pytest.raises(RequestRejectedError):
            hook.download("f1", tmp_path / "f")
        assert counted == {"requests.download_link.success": 2, "downloads.bytes": 70_000}
        counted.clear()
        reader = hook.open_file("f1")
        for start in (0, 100_000):
            assert reader.read(start, start + 100) == data[start : start + 100]
        assert counted == {"requests.download_link.success": 1, "downloads.bytes": 201}


def test_every_outcome_of_a_request_is_documented() -> None:
    kinds = [
        kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, exceptions.CloudStoreError)
    ]
    assert {outcome_of(None), *map(outcome_of, kinds)} <= set(re.findall(r"`([a-z_]+)`", DOCS.read_text()))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (exceptions.RateLimitError, "rate_limited"),
        (exceptions.TransientServiceError, "server_failure"),
        (exceptions.OutcomeUnknownError, "outcome_unknown"),
        (exceptions.NotFoundError, "not_found"),
        (exceptions.AuthenticationError, "unauthorized"),
        (exceptions.RequestRejectedError, "rejected"),
        (exceptions.PermissionDeniedError, "rejected"),
        (exceptions.ConfigurationError, "error"),
    ],
)
def test_every_end_of_a_request_has_a_name(error: type[exceptions.CloudStoreError] | None, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_two_tries_of_a_batch_count_each_upload_once(counted: Counter[str]) -> None:
    first = {"total": 10, "queued": 6, "failed": 1, "unknown": 0, "skipped": 0, "queued_earlier": 0}
    second = {"total": 10, "queued": 9, "failed": 1, "unknown": 0, "skipped": 0, "queued_earlier": 6}
    count_batch(first, final=False)
    assert counted == {"batch.queued": 6}
    count_batch(second, final=True)
    assert counted == {"batch.queued": 9, "batch.failed": 1}
