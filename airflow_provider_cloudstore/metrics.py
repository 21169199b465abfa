"""Publishes counters through Airflow's ``Stats``. Their names are stable: dashboards and alerts depend on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.compat import AirflowTaskTimeout, Stats
from airflow_provider_cloudstore.exceptions import CloudStoreError, FileWaitTimeoutError
from airflow_provider_cloudstore.protocol.calls import Call

log = logging.getLogger(__name__)

# The first match applies. Error classes may be renamed, these names may not.
_OUTCOMES: tuple[tuple[type[CloudStoreError], str], ...] = (
    (exceptions.RateLimitError, "rate_limited"),
    (exceptions.ServiceUnreachableError, "unreachable"),
    (exceptions.TransientServiceError, "server_failure"),
    (exceptions.OutcomeUnknownError, "outcome_unknown"),
    (exceptions.ServiceError, "service_error"),
    (exceptions.InvalidResponseError, "invalid_response"),
    (exceptions.NotFoundError, "not_found"),
    (exceptions.AuthenticationError, "unauthorized"),
    (exceptions.RequestRejectedError, "rejected"),
)


def _count(name: str, count: int = 1) -> None:
    try:
        Stats.incr(f"cloudstore.{name}", count)
    except Exception as error:  # noqa: BLE001  (of any metrics client; a failed counter must not deny an upload that was queued)
        log.warning("Could not count cloudstore.%s (%s)", name, type(error).__name__)


@contextmanager
def counted_requests(call: Call[Any]) -> Iterator[None]:
    """Count the requests that a call has sent at the end of the block, by outcome."""
    try:
        yield
    finally:
        for error in call.outcomes:
            _count(f"requests.{call.operation.name.replace(' ', '_')}.{outcome_of(error)}")


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
    """Count what a download received, whether it succeeded or not.

    :param received: bytes, also those that came twice.
    """
    if received:
        _count("downloads.bytes", received)


def count_batch(summary: Mapping[str, int], *, final: bool) -> None:
    """Count what a try of a batch did. Earlier tries have counted what they queued.

    :param summary: the batch's counts.
    :param final: whether no later try resumes it: only then are the failures final.
    """
    counts = {"queued": summary["queued"] - summary["queued_earlier"]}
    if final:
        counts |= {name: summary[name] for name in ("failed", "unknown", "skipped")}
    for name, count in counts.items():
        if count > 0:
            _count(f"batch.{name}", count)


def outcome_of(error: type[CloudStoreError] | None) -> str:
    """How a request ended, from the type of its error."""
    if error is None:
        return "success"
    return next((name for kind, name in _OUTCOMES if issubclass(error, kind)), "error")
