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
    """Retry a task when the service said, where a call gave up because ``Retry-After`` exceeded the time it had left.

    Every operator of this package has it by default, and a ``retry_policy`` of your own replaces it. Give it to a TaskFlow task
    that calls the hook. How many retries there are is for the task's ``retries`` to say; a permanent error gets none.
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
