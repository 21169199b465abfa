"""When a queued upload has become a file. The API has no status operation: a file is there when a link for it can be made.

Sensor, operator and trigger ask the same question through this module, so they get the same answer.
"""

from __future__ import annotations

import random

from pendulum import DateTime

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.errors import CloudStoreError

_NOT_YET = (
    errors.NotFound,  # still in the queue
    errors.ServiceError,  # HTTP 200 with an error envelope: how many services say "not found"
    errors.RateLimited,
    errors.ServerFailure,
    errors.ServiceUnreachable,
)
_JITTER = 0.2


class FileWait:
    """The state of waiting for one file.

    :param file_id: the file.
    :param interval: seconds between two looks, on average.
    :param deadline: when the wait ends (UTC).
    """

    def __init__(self, file_id: str, interval: float, deadline: DateTime) -> None:
        self.file_id = file_id
        self.deadline = deadline
        self.words = ""
        """What the last look found, without secrets."""
        self._interval = interval

    def not_yet(self, error: CloudStoreError) -> str | None:
        """Go on waiting after a look that made no link.

        :param error: what the look ended with.
        :returns: a line for the log where the reason has changed, else None.
        :raises CloudStoreError: ``error`` itself, if looking again cannot help.
        """
        if not isinstance(error, _NOT_YET):
            raise error
        if error.what == self.words:
            return None
        self.words = error.what
        return (
            f"File '{self.file_id}' is not there yet ({self.words}); "
            f"looking every {self._interval:g} s until {self.deadline.to_datetime_string()} UTC"
        )

    def first_pause(self) -> float:
        """Seconds until the first look of one who takes over from another: anywhere in the interval, to spread many waiters."""
        return random.uniform(0, self._interval)

    def pause(self, now: DateTime, error: CloudStoreError) -> float:
        """Seconds until the next look: the interval with some jitter, or what the service asks for, but not past the deadline.

        :param now: the time now (UTC).
        :param error: what the last look ended with.
        """
        wanted = max(self._interval * random.uniform(1 - _JITTER, 1 + _JITTER), error.retry_after or 0.0)
        return max(0.0, min(wanted, self.deadline.timestamp() - now.timestamp()))

    def over(self, now: DateTime) -> bool:
        """Whether the deadline has come.

        :param now: the time now (UTC).
        """
        return now >= self.deadline


def file_not_available(file_id: str, seconds: float, words: str) -> errors.FileNotAvailable:
    """The error of a wait that ended without the file: for how long, for what, and the service's last words.

    :param file_id: the file.
    :param seconds: how long the wait was allowed to take.
    :param words: what the last look found.
    """
    what = f"the file was not there within {seconds:g} s, the last answer was: {words or 'none'}"
    return errors.FileNotAvailable(what, operation="wait", subject=file_id)
