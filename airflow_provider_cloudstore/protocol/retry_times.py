"""Decides when Airflow should retry a task after a ``Retry-After``."""

from __future__ import annotations

from airflow_provider_cloudstore.protocol.errors import CloudStoreError

MAX_DELAY = 86_400.0
"""Seconds; a longer ``Retry-After`` counts as a day: a broken one must not delay a task for years."""


def retry_delay(error: BaseException, planned: float) -> float | None:
    """Seconds until the retry that the service asked for, or None if the task's ``retry_delay`` applies.

    If a call gave up because ``Retry-After`` exceeded its remaining time, the retry comes at the requested time. If it gave up
    for another reason, the retry comes after ``retry_delay``, but never before the requested time.

    :param error: what ended the task.
    :param planned: the task's ``retry_delay`` in seconds.
    """
    if not isinstance(error, CloudStoreError) or error.retry_after is None:
        return None
    if not error.retry_after_too_long and error.retry_after <= planned:
        return None
    return min(error.retry_after, MAX_DELAY)
