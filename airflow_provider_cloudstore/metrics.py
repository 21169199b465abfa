"""Publishes counters through Airflow's ``Stats``. Their names are stable: dashboards and alerts depend on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout, Stats

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, FileWaitTimeoutError

log = logging.getLogger(__name__)

PREFIX = "cloudstore"
# The first match applies. Error classes may be renamed, these names may not.
_OUTCOMES: tuple[tuple[type[errors.CloudStoreError], str], ...] = (
    (errors.RateLimitError, "rate_limited"),
    (errors.ServiceUnreachableError, "unreachable"),
    (errors.TransientServiceError, "server_failure"),
    (errors.OutcomeUnknownError, "outcome_unknown"),
    (errors.ServiceError, "service_error"),
    (errors.InvalidResponseError, "invalid_response"),
    (errors.NotFoundError, "not_found"),
    (errors.AuthenticationError, "unauthorized"),
    (errors.RequestRejectedError, "rejected"),
)
_OTHER = "error"
SUCCESS = "success"

OUTCOMES = (SUCCESS, *(name for _, name in _OUTCOMES), _OTHER)
WAIT_OUTCOMES = ("available", "timeout", "failed")
BATCH_COUNTS = ("queued", "failed", "unknown", "skipped")
DOWNLOAD_COUNTS = ("bytes", "resumptions", "replaced_links")


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

    :param counts: by :data:`~airflow_provider_cloudstore.metrics.DOWNLOAD_COUNTS`.
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


def outcome_of(error: type[errors.CloudStoreError] | None) -> str:
    """How a request ended.

    :param error: the error's type, or None for success.
    """
    if error is None:
        return SUCCESS
    return next((name for kind, name in _OUTCOMES if issubclass(error, kind)), _OTHER)


def request_metric(operation: str, outcome: str) -> str:
    """The counter of requests.

    :param operation: the operation's name, such as ``delete folder``.
    :param outcome: one of :data:`OUTCOMES`.
    """
    return f"{PREFIX}.requests.{operation.replace(' ', '_')}.{outcome}"


def wait_metric(outcome: str) -> str:
    """The counter of waits for a file.

    :param outcome: one of :data:`WAIT_OUTCOMES`.
    """
    return f"{PREFIX}.waits.{outcome}"


def download_metric(name: str) -> str:
    """A counter of downloads.

    :param name: one of :data:`DOWNLOAD_COUNTS`.
    """
    return f"{PREFIX}.downloads.{name}"


def batch_counts(summary: Mapping[str, int], *, final: bool) -> dict[str, int]:
    """The counts of one try of a batch, by metric. Earlier tries have counted what they queued.

    :param summary: the batch's counts.
    :param final: whether no later try resumes it: only then are the failures final.
    """
    counts = {"queued": summary["queued"] - summary["queued_earlier"]}
    if final:
        counts |= {name: summary[name] for name in BATCH_COUNTS if name != "queued"}
    return {f"{PREFIX}.batch.{name}": count for name, count in counts.items() if count > 0}
