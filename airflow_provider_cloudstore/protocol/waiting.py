"""Decides when a queued upload has become a file. The API has no status operation: a file is available once it has a link.

Sensor, operator and trigger share this module, so they decide alike.
"""

from __future__ import annotations

import random

from pendulum import DateTime

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError

_NOT_YET = (
    exceptions.NotFoundError,  # still in the queue
    exceptions.ServiceError,  # HTTP 200 with an error envelope: how many services report "not found"
    exceptions.RateLimitError,
    exceptions.TransientServiceError,
    exceptions.ServiceUnreachableError,
)
_JITTER = 0.2

ON_WORKER_SECONDS = 5.0
"""How long a deferrable wait polls on the worker first: most small files are available by then, without a deferral."""
SETTLE_SECONDS = 10.0
"""Minimum sleep of a trigger before its first poll. Airflow's scheduler fails a task whose trigger fires before it has
processed the successful exit of the process that deferred (apache/airflow 67287, 71580)."""

INCONCLUSIVE_POLLS = 3
INCONCLUSIVE_SECONDS = 30.0


class InconclusiveResponses:
    """Counts consecutive inconclusive responses: a single one proves nothing, but a series that lasts does."""

    def __init__(self) -> None:
        self._count = 0
        self._first: DateTime | None = None

    def tolerates(self, now: DateTime) -> bool:
        """Count one; whether the series is too short to be final."""
        self._count += 1
        self._first = self._first or now
        return self._count < INCONCLUSIVE_POLLS or (now - self._first).total_seconds() < INCONCLUSIVE_SECONDS

    def reset(self) -> None:
        """End the series: another response came."""
        self._count, self._first = 0, None


class FileWait:
    """The state of waiting for one file. Each ``error`` is what the last poll ended with, and each ``now`` is in UTC.

    :param file_id: the file.
    :param interval: seconds between two polls, on average.
    :param deadline: when the wait ends (UTC).
    :param remembered: whether this state survives between polls; if not, inconclusive responses do not end the wait.
    """

    def __init__(self, file_id: str, interval: float, deadline: DateTime, *, remembered: bool = True) -> None:
        self.file_id = file_id
        self.deadline = deadline
        self.message = ""
        """Why the last poll found no file, without secrets."""
        self._interval = interval
        self.retry_after = 0.0
        """Seconds that the last response asked to wait."""
        self._first: DateTime | None = None
        self._inconclusive = InconclusiveResponses()
        self._remembered = remembered

    def not_yet(self, error: CloudStoreError, now: DateTime) -> str | None:
        """Keep waiting after a poll that created no link.

        :returns: a line for the log if the reason has changed, else None.
        :raises CloudStoreError: ``error`` itself, if polling again cannot help.
        """
        self._first = self._first or now
        self.retry_after = error.retry_after or 0.0
        if not error.inconclusive:
            self._inconclusive.reset()
        final = error.inconclusive and self._remembered and not self._inconclusive.tolerates(now)
        if final or not (error.inconclusive or isinstance(error, _NOT_YET)):
            raise error
        if error.reason == self.message:
            return None
        self.message = error.reason
        ends = f"polling every {self._interval:g} s until {self.deadline.to_datetime_string()} UTC"
        if error.inconclusive and self._remembered:
            return (
                f"The response is inconclusive about file '{self.file_id}' ({self.message}); {ends}, "
                f"or until {INCONCLUSIVE_POLLS} such responses in a row span {INCONCLUSIVE_SECONDS:g} s"
            )
        return f"File '{self.file_id}' is not available yet ({self.message}); {ends}"

    def first_pause(self, now: DateTime) -> float:
        """Seconds until the first poll of a trigger: spread over the interval, after the scheduler has settled the deferral."""
        return self._until_deadline(now, SETTLE_SECONDS + random.uniform(0, self._interval))

    def should_defer(self, now: DateTime, error: CloudStoreError) -> bool:
        """Whether a deferrable wait has polled on the worker for long enough; it does not wait there for a ``Retry-After``."""
        polled = (now - self._first).total_seconds() if self._first else 0.0
        return polled >= ON_WORKER_SECONDS or error.retry_after is not None or self.over(now)

    def pause_on_worker(self, now: DateTime, error: CloudStoreError) -> float:
        """Seconds until the next poll of a deferrable wait that is still on the worker."""
        return min(1.0, self.pause(now, error))

    def pause(self, now: DateTime, error: CloudStoreError) -> float:
        """Seconds until the next poll: the interval with some jitter, or ``Retry-After`` if longer, but not past the deadline."""
        wanted = max(self._interval * random.uniform(1 - _JITTER, 1 + _JITTER), error.retry_after or 0.0)
        return self._until_deadline(now, wanted)

    def _until_deadline(self, now: DateTime, wanted: float) -> float:
        return max(0.0, min(wanted, self.deadline.timestamp() - now.timestamp()))

    def over(self, now: DateTime) -> bool:
        """Whether the deadline has passed."""
        return now >= self.deadline


def file_wait_timeout(file_id: str, seconds: float, message: str) -> exceptions.FileWaitTimeoutError:
    """The error of a wait that ended without the file.

    :param message: why the last poll found no file.
    """
    reason = f"the file was not available within {seconds:g} s; last response: {message or 'none'}"
    return exceptions.FileWaitTimeoutError(reason, operation="wait", subject=file_id)
