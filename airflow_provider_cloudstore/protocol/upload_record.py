"""What one try of a task records of its upload, so that the next one knows whether it was sent when the first was killed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Self

_DIGEST_BYTES = 16
_MAX_RESULT_BYTES = 48 * 1024  # a state store keeps 64 KiB


class UploadState(Enum):
    """How far an upload has come."""

    SENDING = "sending"
    """It is about to be sent; whoever finds this later cannot tell whether it was."""
    QUEUED = "queued"
    """The service has queued it; ``result`` is what the task returns."""
    UNKNOWN = "unknown"
    """The task failed with that: nobody can tell whether it was queued."""


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload in a task's state store, which anybody who may see the task can read: no secret is in it.

    :param digest: the digest of the source URL: another URL is another upload.
    :param try_number: the try that sent it.
    :param max_tries: the task's, which Airflow raises when the task is cleared and leaves alone when it is retried.
    :param sent_at: when it was sent (ISO 8601, UTC).
    :param state: how far it has come.
    :param result: the task's return value, if it is queued.
    """

    digest: str
    try_number: int
    max_tries: int
    sent_at: str
    state: UploadState = UploadState.SENDING
    result: dict[str, Any] | None = None

    def queued(self, result: dict[str, Any]) -> Self | None:
        """The record once the upload is queued, or None where the result is too large to be recorded.

        :param result: the task's return value.
        """
        if len(json.dumps(result)) > _MAX_RESULT_BYTES:
            return None
        return replace(self, state=UploadState.QUEUED, result=result)

    def settles(self, now: UploadRecord) -> bool:
        """Whether this record, found by a later try, says what that try has to do: not to send.

        It does not if the later try uploads another URL, or if the task was cleared after its end: somebody wants it sent again.
        A task that was killed before it could tell that the outcome is unknown has to tell it first, cleared or not.

        :param now: the record that the later try would begin with.
        """
        if self.digest != now.digest:
            return False
        return self.state is UploadState.SENDING or self.max_tries == now.max_tries

    def to_json(self) -> dict[str, Any]:
        """The record as the state store keeps it."""
        return {**asdict(self), "state": self.state.value}

    @classmethod
    def from_json(cls, stored: Any) -> Self | None:
        """The record that :meth:`to_json` gave.

        :param stored: what the state store keeps, or None.
        """
        return cls(**{**stored, "state": UploadState(stored["state"])}) if stored else None


def url_digest(url: str) -> str:
    """A digest of a source URL, by which it is recognised without being readable.

    :param url: the URL, with all that gives access in it.
    """
    return hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
