"""Records an upload in the task's state store (Airflow 3.3 and later), so that a retry after a kill does not resend it.

The record is written before the upload is sent, and updated with its outcome. Airflow keeps it for as long as any task's state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_cloudstore.compat import AirflowTaskTimeout
from airflow_provider_cloudstore.exceptions import CloudStoreError, OutcomeUnknownError
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import redact_url

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.results import RemoteUploadXCom

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_upload"
"""The key of the record ``{"sent_at", "max_tries", "result"}``. Everyone with access to the task can read it: it has no secrets.
``max_tries`` is None until the task has reported how the upload ended; ``result`` is the queued upload, or None."""


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
    advice = UploadFromUrl.hints[OutcomeUnknownError]
    if store is None:
        try:
            return send()
        except AirflowTaskTimeout:
            reason = "execution_timeout ended the task while it sent this upload"
            raise OutcomeUnknownError(reason, operation=UploadFromUrl.name, subject=redact_url(url), advice=advice) from None
    max_tries = context["ti"].max_tries  # Airflow raises it when the task is cleared, but not when it is retried
    found, in_doubt = store.get(STATE_KEY), None
    # A task that was cleared after its end sends again, because clearing asks for that. But a task that was killed before it
    # could report how the upload ended must report it first.
    if found is not None and found.get("max_tries") in (None, max_tries):
        subject = redact_url(url)
        if result := found.get("result"):
            log.info("An earlier try queued the upload of %s; it is not sent again", subject)
            return cast("RemoteUploadXCom", result)
        reason = f"an earlier try ended while sending this upload (at {found.get('sent_at')})"
        if not retry_unknown_outcome:
            _note(store, found | {"max_tries": max_tries})
            raise OutcomeUnknownError(reason, operation=UploadFromUrl.name, subject=subject, advice=advice)
        in_doubt = found
        log.warning("remote upload '%s': %s; resending it because retry_unknown_outcome=True", subject, reason)
    record = {"sent_at": datetime.now(UTC).isoformat(timespec="seconds"), "max_tries": None, "result": None}
    store.set(STATE_KEY, record)
    try:
        result = send()
    except CloudStoreError as error:
        _note(store, record | {"max_tries": max_tries} if error.may_have_effect else in_doubt)
        raise
    _note(store, record | {"max_tries": max_tries, "result": result})
    return result


def _note(store: Any, record: dict[str, Any] | None) -> None:
    """Replace or delete the record. A failure is only logged, because it does not change the upload's outcome."""
    try:
        if record is None:
            store.delete(STATE_KEY)
        else:
            store.set(STATE_KEY, record)
    except Exception as error:  # noqa: BLE001  (a custom state store backend may raise anything)
        log.warning(
            "Could not record the outcome of the upload in the task's state store (%s): a later try may not know it",
            type(error).__name__,
        )
