"""Brings Airflow's retry when the service asked for it (``Retry-After``): Airflow 3.3 and later only."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.protocol.retry_times import retry_delay

try:
    from airflow.providers.common.compat.sdk import RetryDecision, RetryPolicy
except ImportError:  # Airflow before 3.3
    RetryDecision = RetryPolicy = object  # type: ignore[assignment,misc]


class RetryAfterPolicy(RetryPolicy):
    """Delay a task's retry as the service asked, if a call gave up because ``Retry-After`` exceeded its remaining time.

    The default of every operator of this package; a ``retry_policy`` of your own replaces it. Set it on TaskFlow tasks
    that call the hook. The task's ``retries`` still limits the number of retries; a permanent error is not retried.
    Airflow 3.3 and later.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Airflow's question after a failed try, on the worker."""
        task = context["ti"].task if context else None
        planned = task.retry_delay if task else timedelta(0)
        delay = retry_delay(exception, planned.total_seconds() if isinstance(planned, timedelta) else float(planned))
        if delay is None:
            return RetryDecision.default()
        return RetryDecision.retry(timedelta(seconds=delay), f"the service asked to wait {delay:g} s (Retry-After)")
