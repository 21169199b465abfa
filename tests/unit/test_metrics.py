from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_cloudstore import exceptions, metrics
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.metrics import count_request
from airflow_provider_cloudstore.protocol import attempts
from airflow_provider_cloudstore.protocol.operations import DeleteFolder
from tests.support import settings, store_file

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "operate" / "metrics.md"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What Airflow is told to count."""
    counter: Counter[str] = Counter()

    class Stats:
        @staticmethod
        def incr(name: str) -> None:
            counter[name.removeprefix("cloudstore.")] += 1

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
    operation = DeleteFolder(settings(), "a")
    with caplog.at_level(logging.WARNING):
        count_request(operation, object())
        assert caplog.text == ""

        class Stats:
            @staticmethod
            def incr(name: str) -> None:
                raise ConnectionRefusedError("https://metrics/?secret")

        monkeypatch.setattr(metrics, "Stats", Stats)
        count_request(operation, object())
    assert "Could not count cloudstore.requests.delete_folder.success (ConnectionRefusedError)" in caplog.text
    assert "secret" not in caplog.text


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
