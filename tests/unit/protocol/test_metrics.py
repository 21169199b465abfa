from __future__ import annotations

import re

import pytest

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.metrics import OUTCOMES, batch_counts, outcome_of, request_metric


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (errors.RateLimitError, "rate_limited"),
        (errors.RetryableOutcomeUnknownError, "outcome_unknown"),
        (errors.NotFoundError, "not_found"),
        (errors.AuthenticationError, "unauthorized"),
        (errors.RedirectError, "rejected"),
        (errors.PermissionDeniedError, "rejected"),
        (errors.ConfigurationError, "error"),
    ],
)
def test_every_end_of_a_request_has_a_name(error: type[errors.CloudStoreError] | None, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_name_is_one_that_statsd_takes(outcome: str) -> None:
    assert re.fullmatch(r"cloudstore\.requests\.delete_folder\.[a-z_]+", request_metric("delete folder", outcome))


def test_two_tries_of_a_batch_count_each_upload_once() -> None:
    first = {"total": 10, "queued": 6, "failed": 1, "unknown": 0, "skipped": 0, "queued_earlier": 0}
    second = {"total": 10, "queued": 9, "failed": 1, "unknown": 0, "skipped": 0, "queued_earlier": 6}
    assert batch_counts(first, final=False) == {"cloudstore.batch.queued": 6}
    assert batch_counts(second, final=True) == {"cloudstore.batch.queued": 3, "cloudstore.batch.failed": 1}
