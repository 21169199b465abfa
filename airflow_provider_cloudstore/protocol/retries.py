"""The retry policy of a call and of a download.

A retry waits for ``Retry-After``, or else for an exponential backoff with full jitter. Retries end after the connection's
``max_attempts``, or when the pauses would exceed five minutes in all.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_MAX_PAUSES = 300.0
"""The most seconds for all pauses of a call or a download."""
_INITIAL_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


@dataclass(slots=True)
class Retries:
    """Counts the attempts of a call or a download, and decides whether another attempt follows.

    :param settings: say how many attempts may be made; an attempt with a new token in place of a refused one may exceed that.
    :param maximum: how many attempts may be made, in place of what the settings say.
    :param count: how many attempts were made, including the current attempt.
    :param in_doubt: whether an earlier attempt may have had an effect.
    :param paused: seconds of all pauses so far.
    """

    settings: Settings
    maximum: int = 0
    count: int = 0
    in_doubt: bool = False
    paused: float = 0.0

    def __post_init__(self) -> None:
        self.maximum = self.maximum or self.settings.max_attempts

    def next_pause_or_raise(self, error: CloudStoreError) -> float:
        """Return the seconds to pause before the next attempt, and log operation, attempt, reason and delay in one line.

        :param error: what the current attempt ended with.
        :raises CloudStoreError: ``error`` itself, if there is no next attempt.
        """
        pause = self._backoff() if error.retry_after is None else error.retry_after
        if not error.retried or self.count >= self.maximum or self.paused + pause > _MAX_PAUSES:
            raise error
        when = f" in {pause:.1f} s" if pause else ""
        what = f"attempt {self.count} of {self.maximum} failed ({error.reason}); retrying{when}"
        log.warning("%s: %s", error.about, what)
        self.in_doubt = self.in_doubt or error.may_have_effect
        self.paused += pause
        return pause

    def _backoff(self) -> float:
        doublings = min(self.count - 1, 1000)  # 2**1024 would not fit in a float
        return random.uniform(0, min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**doublings))
