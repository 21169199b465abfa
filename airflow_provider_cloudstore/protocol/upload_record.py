"""What a try of a task records of its upload, so that a retry after a kill knows whether it was sent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from types import NoneType
from typing import Any, Self

from airflow_provider_cloudstore.exceptions import InvalidInputError

_MAX_RESULT_BYTES = 48 * 1024  # a state store keeps 64 KiB
_TYPES = {"digest": str, "try_number": int, "max_tries": int, "sent_at": str, "state": str}


class UploadState(Enum):
    """How far an upload has come."""

    SENDING = "sending"
    """About to be sent; a later try cannot know whether it was."""
    QUEUED = "queued"
    """The service has queued it; ``result`` is the task's return value."""
    UNKNOWN = "unknown"
    """The task failed with ``OutcomeUnknownError``: it may have been queued."""


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload in a task's state store. It contains no secret: everyone with access to the task can read it.

    :param digest: the digest of the source URL, which identifies the upload.
    :param try_number: the try that sent it.
    :param max_tries: the task's, which Airflow raises when the task is cleared, but not when it is retried.
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
        """The record of the queued upload, or None if the result is too large to be recorded."""
        if len(json.dumps(result)) > _MAX_RESULT_BYTES:
            return None
        return replace(self, state=UploadState.QUEUED, result=result)

    def settles(self, now: UploadRecord) -> bool:
        """Whether this record, found by a later try, keeps that try from sending.

        It does not if the later try uploads another URL, or if the task was cleared after its end, which asks for a resend.
        A task that was killed before it could report the unknown outcome must report it first, cleared or not.

        :param now: the record with which the later try would begin.
        """
        if self.digest != now.digest:
            return False
        return self.state is UploadState.SENDING or self.max_tries == now.max_tries

    def to_json(self) -> dict[str, Any]:
        """The record as the state store holds it."""
        return {**asdict(self), "state": self.state.value}

    @classmethod
    def from_json(cls, stored: Any) -> Self | None:
        """The record that :meth:`to_json` returned, or None if nothing is stored.

        :raises InvalidInputError: if it is damaged: then it does not tell whether the upload was sent.
        """
        if stored is None:
            return None
        if _is_record(stored):
            return cls(**{**stored, "state": UploadState(stored["state"])})
        raise InvalidInputError(
            "the record of this upload in Airflow's state store is damaged; nothing was sent",
            advice="Check in the service whether the file arrived; if not, delete the record and clear the task.",
        )


def _is_record(stored: Any) -> bool:
    if not isinstance(stored, dict) or {name: type(value) for name, value in stored.items() if name != "result"} != _TYPES:
        return False
    if stored["state"] not in [state.value for state in UploadState]:
        return False
    return isinstance(stored.get("result"), dict if stored["state"] == UploadState.QUEUED.value else NoneType)


def url_digest(url: str) -> str:
    """A digest that identifies a source URL without revealing it.

    :param url: the URL, credentials included.
    """
    return hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
