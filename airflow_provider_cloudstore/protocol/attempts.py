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
    :param renewals: how many may be made, beyond the maximum, because a token was refused and replaced.
    :param refused_token: the token that the service refused last before it was replaced; None if it was not.
    :param renewed: how many tokens were replaced.
    """

    maximum: int
    count: int = 0
    in_doubt: bool = False
    renewals: int = 1
    renewed: int = 0
    refused_token: Secret | None = None

    def next(self) -> Self:
        """With one more."""
        return replace(self, count=self.count + 1)

    def after(self, error: CloudStoreError, token: Secret) -> Self:
        """With what the last one leaves open, and the token that it used, if that was refused."""
        in_doubt = self.in_doubt or error.may_have_effect
        if isinstance(error, AuthenticationError):
            return replace(self, in_doubt=in_doubt, renewed=self.renewed + 1, refused_token=token)
        return replace(self, in_doubt=in_doubt)

    @property
    def exhausted(self) -> bool:
        """Whether none is left. Those with a new token are extra: they do not retry the same request."""
        return self.count - self.renewed >= self.maximum

    def needs_token(self, error: CloudStoreError) -> bool:
        """Whether the token was refused and may be replaced: the connection is read again, or a token asked for."""
        return isinstance(error, AuthenticationError) and self.renewed < self.renewals


def pause_before_retry(
    error: CloudStoreError, attempts: Attempts, time_left: float, on_retry: Callable[[str], None] = log.warning
) -> float | None:
    """Seconds to pause before the next attempt, or None if there is none.

    :param time_left: seconds that are left for attempts and pauses.
    :param on_retry: is called with one line before each pause: operation, attempt, reason and delay.
    """
    what = f"{error.operation} '{error.subject}'"
    if attempts.needs_token(error):
        on_retry(f"{what}: the service refused the access token; looking for a new one")
        return random.uniform(0, 3**attempts.renewed - 1)  # another task may be asking for one, which ends this one's
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
