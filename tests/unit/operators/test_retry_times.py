from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, BaseOperator

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError, RateLimitError, TransientServiceError
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from tests.real_airflow import AIRFLOW_2

OPERATORS: dict[type[BaseOperator], dict[str, Any]] = {
    DeleteFolderOperator: {"folder_id": "staging"},
    DownloadLinkOperator: {"file_id": "f1"},
    RemoteUrlUploadOperator: {"url": "ftp://127.0.0.1:9/f"},
    RemoteUrlBatchUploadOperator: {"urls": ["ftp://127.0.0.1:9/f"], "receipts": None},
}
since_3_3 = pytest.mark.skipif(not HAS_RETRY_POLICIES, reason="Airflow before 3.3 has no retry policies")


def context(task: BaseOperator) -> Any:
    ti = SimpleNamespace(task=task, try_number=1, max_tries=2, start_date=datetime.now(), xcom_push=lambda **given: None)
    return {"ti": ti}


def decide(task: Any, error: BaseException) -> Any:
    return task.retry_policy.evaluate(error, 1, 2, context(task))


@pytest.mark.skipif(not AIRFLOW_2, reason="Airflow 3.0 to 3.2 are covered by the other versions of the matrix")
def test_airflow_2_has_no_retry_policies() -> None:
    assert not HAS_RETRY_POLICIES
    assert not hasattr(DeleteFolderOperator(task_id="delete", folder_id="d"), "retry_policy")


@since_3_3
@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_a_pause_that_does_not_fit_decides_when_airflow_retries(emulator: Emulator, kind: type[BaseOperator]) -> None:
    from airflow.sdk import RetryAction

    emulator.fault("status", status=429, headers={"Retry-After": "1200"}, times=0)
    task = kind(task_id="task", retry_delay=timedelta(minutes=1), **OPERATORS[kind])
    with pytest.raises(CloudStoreError) as failed:
        task.execute(context(task))
    decision = decide(task, failed.value)
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay == timedelta(seconds=1200)
    assert "Retry-After" in decision.reason
    assert sum(emulator.state()["requests"].values()) == 1


@since_3_3
def test_a_policy_of_the_users_own_wins_also_from_default_args_and_for_mapped_tasks() -> None:
    from airflow.sdk import ExceptionRetryPolicy

    own = ExceptionRetryPolicy(rules=[])
    assert getattr(DeleteFolderOperator(task_id="delete", folder_id="d", retry_policy=own), "retry_policy", None) is own
    with DAG("own_policy", start_date=datetime(2026, 1, 1), schedule=None, default_args={"retry_policy": own}):
        assert getattr(DeleteFolderOperator(task_id="delete", folder_id="d"), "retry_policy", None) is own
        mapped: Any = DeleteFolderOperator.partial(task_id="mapped").expand(folder_id=["d"])
    assert mapped.unmap({"folder_id": "d"}).retry_policy is own


@since_3_3
def test_a_mapped_task_has_the_policy_too() -> None:
    from airflow_provider_cloudstore.operators.retry_times import RetryAfterPolicy

    with DAG("mapped_policy", start_date=datetime(2026, 1, 1), schedule=None):
        mapped: Any = DeleteFolderOperator.partial(task_id="mapped").expand(folder_id=["d"])
    assert isinstance(mapped.unmap({"folder_id": "d"}).retry_policy, RetryAfterPolicy)


LIMITED = RateLimitError("HTTP 429", retry_after=700)


@since_3_3
@pytest.mark.parametrize(
    ("error", "number", "planned", "expected"),
    [
        (LIMITED, 1, {"retry_delay": timedelta(seconds=300)}, 700),
        (LIMITED, 1, {"retry_delay": timedelta(seconds=701)}, None),
        (LIMITED, 3, {"retry_delay": timedelta(seconds=300), "retry_exponential_backoff": 2}, 700),
        (TransientServiceError("HTTP 500", retry_after=400), 1, {"retry_delay": timedelta(seconds=300)}, 400),
        (RateLimitError("HTTP 429"), 1, {}, None),
        (ValueError("no error of ours"), 1, {}, None),
    ],
)
def test_the_retry_comes_after_its_delay_and_never_before_the_service_said(
    error: BaseException, number: int, planned: Any, expected: float | None
) -> None:
    from airflow.sdk import RetryAction

    task: Any = DeleteFolderOperator(task_id="delete", folder_id="d", **planned)
    decision = task.retry_policy.evaluate(error, number, 2, context(task))
    assert decision.action is (RetryAction.RETRY if expected else RetryAction.DEFAULT)
    assert decision.retry_delay == (timedelta(seconds=expected) if expected else None)
