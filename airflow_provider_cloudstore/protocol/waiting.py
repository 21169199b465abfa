"""When a queued upload has become a file. The API has no status operation: a file is there when a link for it can be made.

Sensor, operator and trigger ask the same question through this module, so they get the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pendulum import DateTime

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.errors import CloudStoreError

_NOT_YET = (
    errors.NotFoundError,  # still in the queue
    errors.ServiceError,  # HTTP 200 with an error envelope: how many services say "not found"
    errors.RateLimitError,
    errors.TransientServiceError,
    errors.ServiceUnreachableError,
)
_JITTER = 0.2

ON_WORKER_SECONDS = 5.0
"""How long a deferrable wait polls on the worker first: most small files are there by then, and no deferral is needed."""
SETTLE_SECONDS = 10.0
"""How long a trigger sleeps at least before its first poll. Airflow's scheduler fails a task whose trigger fires before it has
read that the process which deferred ended well (apache/airflow 67287, 71580)."""

ODD_POLLS = 3
ODD_SECONDS = 30.0


_MAX_SECONDS = 1e9  # seconds: what is longer than thirty years overflows a date sooner or later


def is_duration(value: object) -> bool:
    """Whether ``value`` is a number of seconds that a wait can take.

    :param value: what was given; a text such as ``1h`` is none.
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MAX_SECONDS


def is_inconclusive(error: CloudStoreError) -> bool:
    """Whether something other than the service may have answered: a front end under maintenance, a login page, a proxy.

    :param error: what a poll ended with.
    """
    if isinstance(error, (*_NOT_YET, errors.AuthenticationError)):
        return False
    if isinstance(error, errors.BadRequestError):  # which speaks of the id, unless a front end wrote it
        return error.web_page
    return isinstance(error, errors.InvalidResponseError | errors.RequestRejectedError)


class OddResponses:
    """Counts the responses in a row that say nothing of the file: a single one proves nothing, but a row that lasts does.

    :param remembered: whether the count lives from one poll to the next; where it cannot, the first response is believed.
    """

    def __init__(self, *, remembered: bool = True) -> None:
        self._polls = 0
        self._first: DateTime | None = None
        self._remembered = remembered

    def tolerates(self, error: CloudStoreError, now: DateTime) -> bool:
        """Count a poll, and tell whether it says nothing of the file and the row it stands in is still too short to be believed.

        :param error: what the poll ended with.
        :param now: when it ended (UTC).
        """
        if not is_inconclusive(error):
            self._polls, self._first = 0, None
            return False
        self._polls += 1
        self._first = self._first or now
        lasted = (now - self._first).total_seconds() >= ODD_SECONDS
        return self._remembered and not (self._polls >= ODD_POLLS and lasted)


class FileWait:
    """The state of waiting for one file.

    :param file_id: the file.
    :param interval: seconds between two polls, on average.
    :param deadline: when the wait ends (UTC).
    :param remembered: whether this state lives from one poll to the next.
    """

    def __init__(self, file_id: str, interval: float, deadline: DateTime, *, remembered: bool = True) -> None:
        self.file_id = file_id
        self.deadline = deadline
        self.message = ""
        """What the last poll found, without secrets."""
        self._interval = interval
        self._first: DateTime | None = None
        self._odd = OddResponses(remembered=remembered)

    def not_yet(self, error: CloudStoreError, now: DateTime) -> str | None:
        """Keep waiting after a poll that made no link.

        :param error: what the poll ended with.
        :param now: when it ended (UTC).
        :returns: a line for the log where the reason has changed, else None.
        :raises CloudStoreError: ``error`` itself, if polling again cannot help.
        """
        self._first = self._first or now
        odd = self._odd.tolerates(error, now)
        if not odd and not isinstance(error, _NOT_YET):
            raise error
        if error.reason == self.message:
            return None
        self.message = error.reason
        ends = f"looking every {self._interval:g} s until {self.deadline.to_datetime_string()} UTC"
        if odd:
            return (
                f"The response says nothing of file '{self.file_id}' ({self.message}); {ends}, "
                f"or until {ODD_POLLS} such responses in a row span {ODD_SECONDS:g} s"
            )
        return f"File '{self.file_id}' is not there yet ({self.message}); {ends}"

    def first_pause(self, now: DateTime) -> float:
        """Seconds until the first poll of a trigger: spread over the interval, after the scheduler has settled the deferral.

        :param now: the time now (UTC).
        """
        return self._until_deadline(now, SETTLE_SECONDS + random.uniform(0, self._interval))

    def should_defer(self, now: DateTime, error: CloudStoreError) -> bool:
        """Whether a deferrable wait has polled on the worker for long enough; a pause that the service asks for is no worker's.

        :param now: the time now (UTC).
        :param error: what the last poll ended with.
        """
        polled = (now - self._first).total_seconds() if self._first else 0.0
        return polled >= ON_WORKER_SECONDS or error.retry_after is not None or self.over(now)

    def pause_on_worker(self, now: DateTime, error: CloudStoreError) -> float:
        """Seconds until the next poll of a deferrable wait that is still on the worker.

        :param now: the time now (UTC).
        :param error: what the last poll ended with.
        """
        return min(1.0, self.pause(now, error))

    def pause(self, now: DateTime, error: CloudStoreError) -> float:
        """Seconds until the next look: the interval with some jitter, or what the service asks for, but not past the deadline.

        :param now: the time now (UTC).
        :param error: what the last look ended with.
        """
        wanted = max(self._interval * random.uniform(1 - _JITTER, 1 + _JITTER), error.retry_after or 0.0)
        return self._until_deadline(now, wanted)

    def _until_deadline(self, now: DateTime, wanted: float) -> float:
        return max(0.0, min(wanted, self.deadline.timestamp() - now.timestamp()))

    def over(self, now: DateTime) -> bool:
        """Whether the deadline has come.

        :param now: the time now (UTC).
        """
        return now >= self.deadline


def file_wait_timeout(file_id: str, seconds: float, message: str) -> errors.FileWaitTimeoutError:
    """The error of a wait that ended without the file: for how long, for what, and the service's last words.

    :param file_id: the file.
    :param seconds: how long the wait was allowed to take.
    :param words: what the last look found.
    """
    what = f"the file was not there within {seconds:g} s, the last answer was: {message or 'none'}"
    return errors.FileWaitTimeoutError(what, operation="wait", subject=file_id)


RECORD_AFTER_SECONDS = 5.0
"""How long after an event a watcher records that the file was reported. The triggerer hands its events on about once a second: a
record that is written at once outlives the event when the triggerer is killed between the two, and the event is lost."""
_PERMANENT_ERROR_PAUSE = 60.0
_MAX_PAUSE = 3600.0


class FileWatch:
    """The state of watching files without an end. No error ends it: Airflow would start the watcher again at once.

    :param interval: seconds between two polls, on average.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._messages: dict[str, str] = {}

    def first_pause(self) -> float:
        """Seconds until the first poll: spread, so that a triggerer that starts is not held up by all watchers at once."""
        return random.uniform(0, min(self._interval, SETTLE_SECONDS))

    def not_yet(self, subject: str, error: CloudStoreError) -> str | None:
        """Keep watching after a poll that made no link.

        :param subject: what the poll was for: a file, or the connection.
        :param error: what it ended with.
        :returns: a line for the log where the reason has changed, else None.
        """
        if self._messages.get(subject) == error.reason:
            return None
        self._messages[subject] = error.reason
        return f"{subject} is not there yet ({error.reason}); polling every {self._interval:g} s"

    def pause(self, errors_of_round: Sequence[CloudStoreError]) -> float:
        """Seconds until the next poll: the interval with some jitter, longer if the service asks for it or polling cannot help.

        :param errors_of_round: what the last polls ended with.
        """
        wanted = self._interval * random.uniform(1 - _JITTER, 1 + _JITTER)
        if any(not isinstance(error, _NOT_YET) for error in errors_of_round):
            wanted = max(wanted, _PERMANENT_ERROR_PAUSE)
        asked = max((error.retry_after or 0.0 for error in errors_of_round), default=0.0)
        return min(max(wanted, asked), max(wanted, _MAX_PAUSE))
