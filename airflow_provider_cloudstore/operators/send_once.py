"""Records an upload in the task's state store (Airflow 3.3 and later), so that a retry after a kill does not resend it.

The record is written before the upload is sent, and says how it ended. Airflow keeps it for as long as any task's state.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_cloudstore.exceptions import CloudStoreError, OutcomeUnknownError
from airflow_provider_cloudstore.protocol.secrets import redact_url

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_upload"


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload in a task's state store. It contains no secret: everyone with access to the task can read it.

    :param digest: of the source URL, credentials included, without revealing it: it identifies the upload.
    :param try_number: the try that sent it; 0 in place of a record that could not be read.
    :param max_tries: the task's, which Airflow raises when the task is cleared, but not when it is retried.
    :param sent_at: ISO 8601, UTC.
    :param state: ``sending`` leaves open whether it was sent; after ``unknown``, the task has failed with that outcome.
    :param result: the upload as the task pushes it, if it is queued.
    """

    digest: str
    try_number: int
    max_tries: int
    sent_at: str
    state: Literal["sending", "queued", "unknown"] = "sending"
    result: dict[str, Any] | None = None

    @classmethod
    def read(cls, stored: Any) -> UploadRecord | None:
        """The record that this or another version has stored, without fields that are not known here; None if unreadable."""
        names = {field.name for field in fields(cls)}
        with suppress(TypeError, AttributeError):  # it lacks one, or is no dict
            return cls(**{name: value for name, value in stored.items() if name in names})
        return None

    def settles(self, now: UploadRecord) -> bool:
        """Whether this record, found by a later try, keeps that try from sending.

        It does not if the task was cleared after its end, which asks for a resend; a task that was killed before it could report
        the unknown outcome must report it first. Nor if the later try uploads another URL, unless this one is queued: a template
        may sign its URL anew for each try.

        :param now: the record with which the later try would begin.
        """
        if self.digest != now.digest and self.state != "queued":
            return False
        return self.state == "sending" or self.max_tries == now.max_tries


def send_once(send: Callable[[], dict[str, Any]], context: Context, url: str, *, retry_unknown_outcome: bool) -> dict[str, Any]:
    """Send an upload, unless an earlier try of the task did or may have done so.

    Until it is sent, the store's errors end the try. Airflow before 3.3 has no store: there, every try sends.

    :returns: the upload as the task pushes it: what ``send`` returned in this try or an earlier one.
    :raises OutcomeUnknownError: if an earlier try was killed while sending it, or left a record that this version cannot read.
    """
    store: Any = context.get("task_state_store")
    if store is None:
        return send()
    stored = store.get(STATE_KEY)
    ti, subject, now = context["ti"], redact_url(url), datetime.now(UTC).isoformat(timespec="seconds")
    digest = hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    record = UploadRecord(digest, ti.try_number, ti.max_tries, now)
    earlier = None if stored is None else UploadRecord.read(stored) or replace(record, try_number=0)
    if earlier and earlier.settles(record):
        if earlier.result is not None:
            log.info("Try %s queued the upload of %s; it is not sent again", earlier.try_number, subject)
            return earlier.result
        reason = f"try {earlier.try_number} ended while sending this upload (at {earlier.sent_at})"
        if not earlier.try_number:
            reason = "an earlier try left a record of this upload that this version of the package cannot read"
        if not retry_unknown_outcome:
            _note(store, replace(earlier, state="unknown", max_tries=record.max_tries))
            raise OutcomeUnknownError(reason, operation="remote upload", subject=subject)
        log.warning("remote upload '%s': %s; resending it because retry_unknown_outcome=True", subject, reason)
    store.set(STATE_KEY, asdict(record))
    try:
        result = send()
    except CloudStoreError as error:
        _note(store, replace(record, state="unknown") if error.may_have_effect else None)
        raise
    _note(store, replace(record, state="queued", result=result))
    return result


def _note(store: Any, record: UploadRecord | None) -> None:
    """Replace or delete the record. The upload's outcome does not depend on whether that succeeds."""
    try:
        if record is None:
            store.delete(STATE_KEY)
        else:
            store.set(STATE_KEY, asdict(record))
    except Exception as error:  # noqa: BLE001  (Airflow's, or any of a custom state store backend)
        log.warning(
            "Could not record the outcome of the upload in the task's state store (%s): a later try may not know it",
            type(error).__name__,
        )
