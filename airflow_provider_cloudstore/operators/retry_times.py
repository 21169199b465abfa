"""Schedules a task's retry as the service's ``Retry-After`` asks (Airflow 3.3 and later)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, RetryDecision, RetryPolicy
else:
    from airflow_provider_cloudstore.compat import RetryDecision, RetryPolicy


class RetryAfterPolicy(RetryPolicy):
    """Delay a task's retry as the service asked, if a call gave up because ``Retry-After`` exceeded its remaining time.

    The default of every operator of this package; a ``retry_policy`` of your own replaces it. Set it on TaskFlow tasks
    that call the hook. The task's ``retries`` still limits the number of retries; a permanent error is not retried.
    Airflow 3.3 and later.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide on the worker, after a failed try, when the task is retried.

        If a call gave up because ``Retry-After`` exceeded its remaining time, the retry comes at the requested time. If it gave
        up for another reason, the retry comes after ``retry_delay``, but never before the requested time.
        """
        from airflow_provider_cloudstore.protocol.errors import CloudStoreError

        if not isinstance(exception, CloudStoreError) or exception.retry_after is None:
            return RetryDecision.default()
        delay = timedelta(seconds=exception.retry_after)
        planned = context["ti"].task.retry_delay if context else timedelta(0)
        if not exception.retry_after_too_long and delay <= planned:
            return RetryDecision.default()
        return RetryDecision.retry(delay, f"the service asked to wait {exception.retry_after:g} s (Retry-After)")
