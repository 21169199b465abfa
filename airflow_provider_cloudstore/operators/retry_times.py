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
        """Decide on the worker, after a failed try, when the task is retried."""
        from airflow_provider_cloudstore.protocol.retry_times import retry_delay

        task = context["ti"].task if context else None
        planned = task.retry_delay if task else timedelta(0)
        delay = retry_delay(exception, planned.total_seconds() if isinstance(planned, timedelta) else float(planned))
        if delay is None:
            return RetryDecision.default()
        return RetryDecision.retry(timedelta(seconds=delay), f"the service asked to wait {delay:g} s (Retry-After)")
