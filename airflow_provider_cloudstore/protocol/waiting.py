"""Decides when a queued upload has become a file. The API has no status operation: a file is available once it has a link.

Sensor, operator and trigger share this module, so they decide alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_provider_cloudstore.exceptions import CloudStoreError, FileWaitTimeoutError, RateLimitError
from airflow_provider_cloudstore.protocol.guards import validate_text

_JITTER = 0.2

ON_WORKER_SECONDS = 5.0
"""How long a deferrable wait polls on the worker first: most small files are available by then, without a deferral."""
SETTLE_SECONDS = 10.0
"""Minimum sleep of a trigger before its first poll. Airflow's scheduler fails a task whose trigger fires before it has
processed the successful exit of the process that deferred (apache/airflow 67287, 71580)."""

INCONCLUSIVE_POLLS = 3
INCONCLUSIVE_SECONDS = 30.0


@dataclass(eq=False, repr=False)
class FileWait:
    """The state of waiting for one file. Durations are in seconds, moments in UTC; ``error`` is what the last poll ended with.

    :param remembered: whether this state survives between polls; if not, inconclusive responses do not end the wait, and when it
        ends is not known here.
    :raises InvalidInputError: if it is no file id.
    """

    file_id: str
    interval: float
    timeout: float
    began: datetime
    remembered: bool = True
    not_before: datetime = field(init=False)
    """When the pause is over that the service asked for."""
    _reason: str = field(default="", init=False)
    _inconclusive: list[datetime] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.file_id = validate_text(self.file_id, "file_id")
        self.not_before = self.began

    @property
    def _deadline(self) -> datetime:
        return self.began + timedelta(seconds=self.timeout)

    def next_pause_or_raise(self, error: CloudStoreError, now: datetime, log: Callable[[str], None]) -> float:
        """Seconds until the next poll: the interval with some jitter, or ``Retry-After`` if longer, but not past the deadline.

        :param log: is called with one line if the reason to go on has changed.
        :raises FileWaitTimeoutError: if the deadline has passed.
        :raises CloudStoreError: ``error`` itself, if polling again cannot help.
        """
        if error.wait == "ends" or (error.wait == "tolerates" and not self._tolerates(now)):
            raise error
        if error.wait != "tolerates":
            self._inconclusive.clear()
        is_new, self._reason = error.reason != self._reason, error.reason
        if now >= self._deadline:
            raise self.timed_out()
        if is_new:
            log(self._describe(error))
        asked = error.retry_after or 0.0
        self.not_before = now + timedelta(seconds=asked)
        wanted = max(self.interval * random.uniform(1 - _JITTER, 1 + _JITTER), asked)
        return self._until_deadline(now, wanted)

    def _tolerates(self, now: datetime) -> bool:
        """Count an inconclusive response: a single one proves nothing, but a series that lasts does."""
        self._inconclusive.append(now)
        lasted = (now - self._inconclusive[0]).total_seconds()
        return not self.remembered or len(self._inconclusive) < INCONCLUSIVE_POLLS or lasted < INCONCLUSIVE_SECONDS

    def _describe(self, error: CloudStoreError) -> str:
        until = f" until {self._deadline:%Y-%m-%d %H:%M:%S} UTC" if self.remembered else ""
        ends = f"polling every {self.interval:g} s{until}"
        if error.wait == "tolerates" and self.remembered:
            return (
                f"The response says nothing of file '{self.file_id}' ({error.reason}); {ends}, "
                f"or until {INCONCLUSIVE_POLLS} such responses in a row span {INCONCLUSIVE_SECONDS:g} s"
            )
        return f"File '{self.file_id}' is not available yet ({error.reason}); {ends}"

    def timed_out(self) -> FileWaitTimeoutError:
        """The error of a wait that ended without the file."""
        reason = f"the file was not available within {self.timeout:g} s; last response: {self._reason or 'none'}"
        return FileWaitTimeoutError(reason, operation="wait", subject=self.file_id)

    def first_pause(self, now: datetime, not_before: datetime) -> float:
        """Seconds until the first poll of a trigger: spread over the interval, after the scheduler has settled the deferral.

        :param not_before: when the pause is over that the service asked for on the worker.
        """
        asked = max(0.0, (not_before - now).total_seconds())
        return self._until_deadline(now, max(SETTLE_SECONDS, asked) + random.uniform(0, self.interval))

    def should_defer(self, now: datetime, error: CloudStoreError) -> bool:
        """Whether a deferrable wait has polled on the worker for long enough; it does not wait out a pause there."""
        asks_to_pause = error.retry_after is not None or isinstance(error, RateLimitError)
        return (now - self.began).total_seconds() >= ON_WORKER_SECONDS or asks_to_pause

    def _until_deadline(self, now: datetime, wanted: float) -> float:
        return max(0.0, min(wanted, (self._deadline - now).total_seconds()))
