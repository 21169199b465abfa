"""Decides when a queued upload has become a file. The API has no status operation: a file is available once it has a link.

The sensor, the operators and the trigger share this module, so they decide alike; but a sensor that is rescheduled begins anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_cloudstore.exceptions import CloudStoreError, FileWaitTimeoutError
from airflow_provider_cloudstore.protocol.guards import validate_text

_JITTER = 0.2
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

SETTLE_SECONDS = 10.0
"""Minimum sleep of a trigger before its first poll. Airflow's scheduler fails a task whose trigger fires before it has
processed the successful exit of the process that deferred (apache/airflow 67287, 71580)."""

INCONCLUSIVE_POLLS = 3
INCONCLUSIVE_SECONDS = 30.0


@dataclass(eq=False, repr=False)
class FileWait:
    """The state of waiting for one file. Durations are in seconds, and moments are in UTC.

    :param not_before: when the pause that the service asked for is over; in the past if it asked for none.
    :raises InvalidInputError: if ``file_id`` is not a file id.
    """

    file_id: str
    interval: float
    timeout: float
    began: datetime
    not_before: datetime = _LONG_AGO
    _reason: str = field(default="", init=False)
    _inconclusive: list[datetime] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.file_id = validate_text(self.file_id, "file_id")

    @property
    def _deadline(self) -> datetime:
        return self.began + timedelta(seconds=self.timeout)

    def next_pause_or_raise(self, error: CloudStoreError, now: datetime, log: Callable[[str], None]) -> float:
        """Return the seconds until the next poll: the interval with jitter or a longer ``Retry-After``, up to the deadline.

        :param error: the error that the last poll ended with.
        :param log: called with one line if the reason to go on has changed.
        :raises FileWaitTimeoutError: if the deadline has passed, or will have when the pause that the service asks for is over.
        :raises CloudStoreError: ``error`` itself, if polling again cannot help.
        """
        if error.wait == "goes on":
            self._inconclusive.clear()
        elif error.wait == "ends" or not self._tolerates(now):
            raise error
        is_new, self._reason = error.reason != self._reason, error.reason
        asked = error.retry_after or 0.0
        self.not_before = now + timedelta(seconds=asked)
        if self.not_before >= self._deadline:
            raise self.timed_out()
        if is_new:
            log(f"File '{self.file_id}' is not available yet ({error.reason}); polling every {self.interval:g} s")
        wanted = max(self.interval * random.uniform(1 - _JITTER, 1 + _JITTER), asked)
        return self._until_deadline(now, wanted)

    def _tolerates(self, now: datetime) -> bool:
        """Count an inconclusive response. A single response proves nothing, but a series that lasts does."""
        self._inconclusive.append(now)
        lasted = (now - self._inconclusive[0]).total_seconds()
        return len(self._inconclusive) < INCONCLUSIVE_POLLS or lasted < INCONCLUSIVE_SECONDS

    def timed_out(self) -> FileWaitTimeoutError:
        """Return the error of a wait that ended without the file."""
        reason = f"the file was not available within {self.timeout:g} s; last response: {self._reason or 'none'}"
        return FileWaitTimeoutError(reason, operation="wait", subject=self.file_id)

    def first_pause(self, now: datetime) -> float:
        """Return the seconds until a trigger's first poll: time to settle the deferral, and a random part of the interval."""
        asked = (self.not_before - now).total_seconds()
        wanted = max(SETTLE_SECONDS, asked) + random.uniform(0, self.interval)
        return max(SETTLE_SECONDS, self._until_deadline(now, wanted))

    def _until_deadline(self, now: datetime, wanted: float) -> float:
        return max(0.0, min(wanted, (self._deadline - now).total_seconds()))
