from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from tests.support import HAS_RETRY_POLICIES

if HAS_RETRY_POLICIES:
    from airflow.sdk.definitions.retry_policy import RetryAction

    from airflow_provider_cloudstore.retry_policies.cloudstore import CloudStoreRetryPolicy


@pytest.mark.skipif(not HAS_RETRY_POLICIES, reason="this Airflow has no retry policies: they came with 3.3")
@pytest.mark.parametrize(
    ("error", "action", "seconds"),
    [
        (exceptions.RateLimitError("limited", retry_after=7.0), "retry", 7),
        (exceptions.NotFoundError("not yet", retry_after=90.0), "retry", 90),
        (exceptions.RateLimitError("limited, without a time"), "default", None),
        (exceptions.RateLimitError("limited, and over", retry_after=0.0), "default", None),
        (exceptions.AuthenticationError("refused"), "default", None),
        (ValueError("not ours"), "default", None),
    ],
)
def test_a_named_time_is_kept(error: Exception, action: str, seconds: int | None) -> None:
    decided: Any = CloudStoreRetryPolicy().evaluate(error, 1, 3)
    delay = None if seconds is None else timedelta(seconds=seconds)
    assert (decided.action, decided.retry_delay) == (RetryAction(action), delay)
