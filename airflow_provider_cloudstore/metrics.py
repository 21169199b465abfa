"""Publishes counters through Airflow's ``Stats``. Their names are stable: dashboards and alerts depend on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_provider_cloudstore.compat import AirflowTaskTimeout, Stats
from airflow_provider_cloudstore.exceptions import CloudStoreError, FileWaitTimeoutError
from airflow_provider_cloudstore.protocol.operations import Operation

log = logging.getLogger(__name__)


def _count(name: str, count: int = 1) -> None:
    try:
        Stats.incr(f"cloudstore.{name}", count)
    except Exception as error:  # noqa: BLE001  (of any metrics client; a failed counter must not deny an upload that was queued)
        log.warning("Could not count cloudstore.%s (%s)", name, type(error).__name__)


def count_request(operation: Operation[Any], outcome: Any) -> None:
    """Count one request by how it ended: with a result or an error."""
    ended = outcome.counted_as if isinstance(outcome, CloudStoreError) else "success"
    _count(f"requests.{operation.counted_as}.{ended}")


@contextmanager
def counted_wait() -> Iterator[None]:
    """Count a wait by outcome; a deferred, rescheduled or skipped wait does not count."""
    try:
        yield
    except (FileWaitTimeoutError, AirflowTaskTimeout):
        _count("waits.timeout")
        raise
    except CloudStoreError:
        _count("waits.failed")
        raise
    _count("waits.available")


def count_download(received: int) -> None:
    """Count the bytes that a download received, also those that came twice, and whether it succeeded or not."""
    if received:
        _count("downloads.bytes", received)


def count_batch(summary: Mapping[str, int], *, final: bool) -> None:
    """Count what a try of a batch did. Earlier tries have counted what they queued.

    :param final: whether no later try resumes it: only then are the failures final.
    """
    counts = {"queued": summary["queued"] - summary["queued_earlier"]}
    if final:
        counts |= {name: summary[name] for name in ("failed", "unknown", "skipped")}
    for name, count in counts.items():
        if count > 0:
            _count(f"batch.{name}", count)
