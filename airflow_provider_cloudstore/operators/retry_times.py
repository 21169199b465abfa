"""Schedules a task's retry as the service's ``Retry-After`` asks (Airflow 3.3 and later)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, RetryDecision, RetryPolicy
else:
    from airflow_provider_cloudstore.compat import RetryDecision, RetryPolicy


_LONGEST_BACKOFF = 86_400.0  # seconds: Airflow's own limit


class RetryAfterPolicy(RetryPolicy):
    """Delay a task's retry for as long as the service asks, if Airflow itself would retry it earlier.

    The default of every operator of this package; a ``retry_policy`` of your own replaces it. Set it on TaskFlow tasks
    that call the hook. The task's ``retries`` still limits the number of retries; a permanent error is not retried.
    Airflow 3.3 and later.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide on the worker, after a failed try, when the task is retried.

        The retry comes when Airflow plans it (``retry_delay``, ``retry_exponential_backoff``, ``max_retry_delay``), but never
        before the time that the service asked for (``Retry-After``).
        """
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        if not isinstance(exception, CloudStoreError) or exception.retry_after is None:
            return RetryDecision.default()
        if context and exception.retry_after <= _shortest_delay(context["ti"].task, try_number):
            return RetryDecision.default()
        delay = timedelta(seconds=exception.retry_after)
        return RetryDecision.retry(delay, f"the service asked to wait {exception.retry_after:g} s (Retry-After)")


def _shortest_delay(task: Any, try_number: int) -> float:
    """Seconds after which Airflow itself would retry at the earliest; to a backoff, it adds up to as much again."""
    delay: float = task.retry_delay.total_seconds()
    factor = task.retry_exponential_backoff or 1
    if factor == 1:
        return delay
    longest = task.max_retry_delay.total_seconds() if task.max_retry_delay else _LONGEST_BACKOFF
    try:
        return min(delay * float(factor) ** (try_number - 1), longest)
    except OverflowError:
        return longest
