"""Schedules a task's retry as the service's ``Retry-After`` asks (Airflow 3.3 and later)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, RetryDecision, RetryPolicy
elif HAS_RETRY_POLICIES:
    from airflow.providers.common.compat.sdk import RetryDecision, RetryPolicy
else:
    RetryPolicy = object


class RetryAfterPolicy(RetryPolicy):
    """Delay a task's retry for as long as the service asks, if that is longer than the task's ``retry_delay``.

    The default of every operator of this package; a ``retry_policy`` of your own replaces it. Set it on TaskFlow tasks
    that call the hook. The task's ``retries`` still limits the number of retries; a permanent error is not retried.
    Airflow 3.3 and later.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide on the worker, after a failed try, when the task is retried.

        A ``Retry-After`` that is longer than ``retry_delay`` replaces it, and Airflow's exponential backoff; otherwise Airflow
        decides.
        """
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        pause = exception.retry_after if isinstance(exception, CloudStoreError) else None
        planned = context["ti"].task.retry_delay.total_seconds() if context else 0.0
        if pause is None or pause <= planned:
            return RetryDecision.default()
        return RetryDecision.retry(timedelta(seconds=pause), f"the service asked to wait {pause:g} s (Retry-After)")
