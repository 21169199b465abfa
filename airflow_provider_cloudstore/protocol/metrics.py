"""The names of the metrics. They are stable: dashboards and alerts depend on them."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_cloudstore.protocol import errors

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
