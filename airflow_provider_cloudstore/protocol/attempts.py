"""The attempts of a call or a download as a value, and the retry policy of both.

Exponential backoff with full jitter, or ``Retry-After``; it ends after the connection's ``max_attempts``, or if the next pause
would exceed the time that is left.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError
from airflow_provider_cloudstore.protocol.secrets import Secret

log = logging.getLogger(__name__)

DEFAULT_BUDGET = 300.0
"""Seconds that a call may take with all its attempts, unless ``execution_timeout`` is shorter; of a download, a pause."""
_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many requests were sent, and what is known from them.

    :param maximum: how many may be sent.
    :param count: how many were, the current one included.
    :param in_doubt: whether an earlier one may have had an effect.
    :param refused_token: the token that the service refused before it was replaced; None if it was not.
    """

    maximum: int
    count: int = 0
    in_doubt: bool = False
    refused_token: Secret | None = None

    def next(self) -> Self:
        """With one more."""
        return type(self)(self.maximum, self.count + 1, self.in_doubt, self.refused_token)

    def after(self, error: CloudStoreError, token: Secret) -> Self:
        """With what the last one leaves open, and the token that it used, if that was refused."""
        refused = token if isinstance(error, AuthenticationError) else self.refused_token
        return replace(self, in_doubt=self.in_doubt or error.may_have_effect, refused_token=refused)

    @property
    def exhausted(self) -> bool:
        """Whether none is left. The one with a new token is extra: it does not retry the same request."""
        return self.count - (self.refused_token is not None) >= self.maximum

    def needs_token(self, error: CloudStoreError) -> bool:
        """Whether the token was refused for the first time, so that the connection is to be read again."""
        return isinstance(error, AuthenticationError) and self.refused_token is None


def pause_before_retry(
    error: CloudStoreError, attempts: Attempts, time_left: float, on_retry: Callable[[str], None] = log.warning
) -> float | None:
    """Seconds to pause before the next attempt, or None if there is none.

    :param time_left: seconds that are left for attempts and pauses.
    :param on_retry: is called with one line before each pause: operation, attempt, reason and delay.
    """
    what = f"{error.operation} '{error.subject}'"
    if attempts.needs_token(error):
        on_retry(f"{what}: the service refused the access token; reading the connection again for a new one")
        return 0.0
    if not error.retried or attempts.exhausted:
        return None
    pause = error.retry_after
    if pause is None:
        doublings = min(attempts.count - 1, 10)  # of 1,024 the result would be no float
        pause = random.uniform(0, min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**doublings))
    if pause >= time_left:
        return None
    when = f" in {pause:.1f} s" if pause else ""
    on_retry(f"{what}: attempt {attempts.count} of {attempts.maximum} failed ({error.reason}); retrying{when}")
    return pause
