from __future__ import annotations

import pytest

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.retry_times import MAX_DELAY, retry_delay


def limited(seconds: float | None, *, too_long: bool) -> errors.RateLimitError:
    return errors.RateLimitError("HTTP 429", retry_after=seconds, retry_after_too_long=too_long)


@pytest.mark.parametrize(
    ("error", "planned", "expected"),
    [
        (limited(7, too_long=True), 600, 7),
        (limited(700, too_long=True), 300, 700),
        (limited(7, too_long=False), 600, None),  # its attempts are used up: the task's own delay is the longer one
        (limited(700, too_long=False), 300, 700),
        (limited(None, too_long=False), 300, None),
        (limited(1e12, too_long=True), 300, MAX_DELAY),
        (errors.TransientServiceError("HTTP 500", retry_after=400, retry_after_too_long=True), 300, 400),
        (ValueError("no error of ours"), 300, None),
    ],
)
def test_the_retry_comes_when_the_service_said_and_never_before(
    error: BaseException, planned: float, expected: float | None
) -> None:
    assert retry_delay(error, planned) == expected
