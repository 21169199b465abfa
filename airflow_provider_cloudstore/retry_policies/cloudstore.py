"""Tells Airflow when to retry a task, from the error with which it failed. Airflow 3.3 and later have retry policies."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from airflow_provider_cloudstore.exceptions import CloudStoreError

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context


class CloudStoreRetryPolicy(RetryPolicy):
    """Retries a task when the service asks for it. Pass ``retry_policy=CloudStoreRetryPolicy()`` to any operator or ``@task``.

    After an error with a ``Retry-After``, the task is retried that many seconds later; after any other error, its own
    ``retry_delay`` applies. The task's ``retries`` is the maximum, and Airflow asks no policy about a permanent error.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide what follows a failed try.

        :param exception: the error of the try.
        :param try_number: the number of the try, from 1.
        :param max_tries: the task's ``retries``, plus the tries that clearing the task added.
        """
        if isinstance(exception, CloudStoreError) and exception.retry_after:
            return RetryDecision.retry(timedelta(seconds=exception.retry_after), "the service asked to wait this long")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """Return an empty dict for the serialized DAG, because the policy has no parameters."""
        return {}
