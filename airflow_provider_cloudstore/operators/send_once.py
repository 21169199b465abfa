"""Records an upload in the task's state store (Airflow 3.3 and later), so that a retry after a kill does not resend it.

The record is written before the upload is sent, and updated with its outcome. Airflow keeps it for as long as any task's state.
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
    """The record of an upload. It contains no secret, because everyone with access to the task can read its state store.

    :param state: ``sending`` means that the upload may have been sent; ``unknown`` means that the task has failed and said so.
    :param max_tries: the task's ``max_tries``, which Airflow raises when the task is cleared, but not when it is retried.
    :param sent_at: ISO 8601, UTC.
    :param result: the queued upload as the task pushes it; None in the other states.
    """

    state: Literal["sending", "queued", "unknown"] = "sending"
    max_tries: int = 0
    sent_at: str = "a time that is not recorded"
    result: RemoteUploadXCom | None = None

    @classmethod
    def read(cls, stored: Any) -> UploadRecord:
        """Read a record that this or another version has stored. A value that is not a record counts as ``sending``."""
        known = stored if isinstance(stored, dict) else {}
        return cls(**{field.name: known[field.name] for field in fields(cls) if field.name in known})

    def settles(self, max_tries: int) -> bool:
        """Whether this record keeps a later try of the task from sending.

        A task that was cleared after its end sends again, because clearing asks for that. But a task that was killed before it
        could report the unknown outcome must report it first.
        """
        return self.state == "sending" or self.max_tries == max_tries


def send_once(
    send: Callable[[], RemoteUploadXCom], context: Context, url: str, *, retry_unknown_outcome: bool
) -> RemoteUploadXCom:
    """Send an upload, unless an earlier try of the task has sent it or may have sent it.

    An error of the store ends the try if it occurs before the upload is sent. Before Airflow 3.3, which has no such store, every
    try sends the upload.

    :returns: the upload as the task pushes it: what ``send`` returned in this try or an earlier try.
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
    """Replace or delete the record. A failure is only logged, because it does not change the upload's outcome."""
    try:
        if record is None:
            store.delete(STATE_KEY)
        else:
            store.set(STATE_KEY, asdict(record))
    except Exception as error:  # noqa: BLE001  (a custom state store backend may raise anything)
        log.warning(
            "Could not record the outcome of the upload in the task's state store (%s): a later try may not know it",
            type(error).__name__,
        )
