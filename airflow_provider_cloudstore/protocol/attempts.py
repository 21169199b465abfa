"""The attempts of a call or a download as a value, and the retry policy of both.

A retry waits for ``Retry-After``, or else for an exponential backoff with full jitter. Retries end after the connection's
``max_attempts``, or when the next pause would exceed the time that is left.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from airflow_provider_cloudstore.exceptions import AuthenticationError, CloudStoreError

log = logging.getLogger(__name__)

DEFAULT_BUDGET = 300.0
"""The most seconds for a call with all its attempts, or for a pause of a download, unless ``execution_timeout`` is shorter."""
_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


@dataclass(frozen=True, slots=True)
class Attempts:
    """The number of attempts so far, and what is known from them.

    :param maximum: how many attempts may be made.
    :param count: how many attempts were made, including the current attempt.
    :param in_doubt: whether an earlier attempt may have had an effect.
    :param has_renewed: whether a refused token was replaced, which happens once.
    """

    maximum: int
    count: int = 0
    in_doubt: bool = False
    has_renewed: bool = False

    def next(self) -> Self:
        """Return a copy that counts one more attempt."""
        return replace(self, count=self.count + 1)

    def after(self, error: CloudStoreError) -> Self:
        """Return a copy that records whether the last attempt may have had an effect, and whether its token was replaced."""
        has_renewed = self.has_renewed or isinstance(error, AuthenticationError)
        return replace(self, in_doubt=self.in_doubt or error.may_have_effect, has_renewed=has_renewed)


def pause_before_retry(
    error: CloudStoreError, attempts: Attempts, time_left: float, on_retry: Callable[[str], None] = log.warning
) -> float | None:
    """Return the seconds to pause before the next attempt, or None if there is no next attempt.

    After an ``AuthenticationError``, there is one at once, which needs another token than the one that was refused.

    :param time_left: seconds that are left for attempts and pauses.
    :param on_retry: called with one line before each pause, which names operation, attempt, reason and delay.
    """
    what = f"{error.operation} '{error.subject}'"
    if isinstance(error, AuthenticationError) and not attempts.has_renewed:
        pause = 0.0
        line = f"{what}: the service refused the access token; looking for a new one"
    elif error.retried and attempts.count < attempts.maximum:
        doublings = min(attempts.count - 1, 10)  # 2**1024 would not fit in a float
        backoff = random.uniform(0, min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**doublings))
        pause = backoff if error.retry_after is None else error.retry_after
        when = f" in {pause:.1f} s" if pause else ""
        line = f"{what}: attempt {attempts.count} of {attempts.maximum} failed ({error.reason}); retrying{when}"
    else:
        return None
    if pause >= time_left:
        return None
    on_retry(line)
    return pause
