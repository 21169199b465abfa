"""Records an upload in the task's state store (Airflow 3.3 and later), so that a retry after a kill does not resend it.

The record is written before the upload is sent, and says how it ended. Airflow keeps it for as long as any task's state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_cloudstore.exceptions import CloudStoreError, OutcomeUnknownError
from airflow_provider_cloudstore.protocol.secrets import redact_url

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.results import RemoteUploadXCom

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_upload"


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload in a task's state store. It contains no secret: everyone with access to the task can read it.

    :param state: ``sending`` leaves open whether it was sent; after ``unknown``, the task has failed with that outcome.
    :param max_tries: the task's, which Airflow raises when the task is cleared, but not when it is retried.
    :param sent_at: ISO 8601, UTC.
    :param result: the upload as the task pushes it, if it is queued.
    """

    state: Literal["sending", "queued", "unknown"] = "sending"
    max_tries: int = 0
    sent_at: str = "a time that is not recorded"
    result: RemoteUploadXCom | None = None

    @classmethod
    def read(cls, stored: Any) -> UploadRecord:
        """The record that this or another version has stored. One that cannot be understood leaves open whether it was sent."""
        known = stored if isinstance(stored, dict) else {}
        return cls(**{field.name: known[field.name] for field in fields(cls) if field.name in known})

    def settles(self, max_tries: int) -> bool:
        """Whether this record, found by a later try, keeps that try from sending.

        It does not if the task was cleared after its end, which asks for a resend. A task that was killed before it could report
        the unknown outcome must report it first.
        """
        return self.state == "sending" or self.max_tries == max_tries


def send_once(
    send: Callable[[], RemoteUploadXCom], context: Context, url: str, *, retry_unknown_outcome: bool
) -> RemoteUploadXCom:
    """Send an upload, unless an earlier try of the task did or may have done so.

    Until it is sent, the store's errors end the try. Airflow before 3.3 has no store: there, every try sends.

    :returns: the upload as the task pushes it: what ``send`` returned in this try or an earlier one.
    :raises OutcomeUnknownError: if an earlier try was killed while sending it.
    """
    store: Any = context.get("task_state_store")
    if store is None:
        return send()
    record = UploadRecord(max_tries=context["ti"].max_tries, sent_at=datetime.now(UTC).isoformat(timespec="seconds"))
    earlier = store.get(STATE_KEY)
    if earlier is not None and (found := UploadRecord.read(earlier)).settles(record.max_tries):
        subject = redact_url(url)
        if found.result is not None:
            log.info("An earlier try queued the upload of %s; it is not sent again", subject)
            return found.result
        reason = f"an earlier try ended while sending this upload (at {found.sent_at})"
        if not retry_unknown_outcome:
            _note(store, replace(found, state="unknown", max_tries=record.max_tries))
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
