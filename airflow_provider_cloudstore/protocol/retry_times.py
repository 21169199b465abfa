"""When Airflow's retry of a task should come, where the service has said so."""

from __future__ import annotations

from airflow_provider_cloudstore.protocol.errors import CloudStoreError

MAX_DELAY = 86_400.0
"""Seconds. A service that asks for more is asked once a day: a broken ``Retry-After`` must not park a task for years."""


def retry_delay(error: BaseException, planned: float) -> float | None:
    """Seconds until the retry that the service asked for, or None where the task's own ``retry_delay`` decides.

    A call that gave up because ``Retry-After`` exceeded its time is retried when the service said. Where it gave up for any other
    reason, the retry only never comes before that.

    :param error: what ended the task.
    :param planned: the task's ``retry_delay`` in seconds.
    """
    if not isinstance(error, CloudStoreError) or error.retry_after is None:
        return None
    if not error.retry_after_too_long and error.retry_after <= planned:
        return None
    return min(error.retry_after, MAX_DELAY)
