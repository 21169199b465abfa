"""Publishes counters through Airflow's ``Stats``, under the names in ``protocol/metrics.py``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout, Stats

from airflow_provider_cloudstore.protocol.calls import Call
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, FileWaitTimeoutError
from airflow_provider_cloudstore.protocol.metrics import batch_counts, download_metric, outcome_of, request_metric, wait_metric

log = logging.getLogger(__name__)


def _count(name: str, count: int = 1) -> None:
    try:
        Stats.incr(name, count)
    except Exception as error:  # noqa: BLE001  (of any metrics client; what is counted has happened and must not fail)
        log.warning("Could not count %s (%s)", name, type(error).__name__)


@contextmanager
def counted_requests(call: Call[Any]) -> Iterator[None]:
    """Count the requests that a call sends within the block, by outcome."""
    before = len(call.outcomes)
    try:
        yield
    finally:
        for error in call.outcomes[before:]:
            _count(request_metric(call.operation.name, outcome_of(error)))


@contextmanager
def counted_wait() -> Iterator[None]:
    """Count a wait by outcome; a deferred, rescheduled or skipped wait does not count."""
    try:
        yield
    except (FileWaitTimeoutError, AirflowSensorTimeout, AirflowTaskTimeout):
        _count(wait_metric("timeout"))
        raise
    except CloudStoreError:
        _count(wait_metric("failed"))
        raise
    _count(wait_metric("available"))


def count_download(counts: Mapping[str, int]) -> None:
    """Count what a download did, whether it succeeded or not.

    :param counts: by :data:`~airflow_provider_cloudstore.protocol.metrics.DOWNLOAD_COUNTS`.
    """
    for name, count in counts.items():
        if count:
            _count(download_metric(name), count)


def count_batch(summary: Mapping[str, int], *, final: bool) -> None:
    """Count what a try of a batch did, from its summary.

    :param final: whether no later try will resume it.
    """
    for name, count in batch_counts(summary, final=final).items():
        _count(name, count)
