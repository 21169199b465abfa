"""Records an upload in the task's state store (Airflow 3.3 and later), so that a retry after a kill does not resend it.

The record is written before the upload is sent, and deleted only after Airflow has stored the task's success: at no moment can
a kill lose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.compat import task_state_store
from airflow_provider_cloudstore.exceptions import CloudStoreError, OutcomeUnknownError, TransientServiceError
from airflow_provider_cloudstore.protocol.upload_record import UploadRecord, UploadState

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_upload"

_OPERATION = "remote upload"
_NOT_RECORDED = (
    "Nothing was sent: without this record, a killed upload could be sent twice. Airflow's retries apply; "
    "check that the API server is reachable."
)


def send_once(
    send: Callable[[], dict[str, Any]],
    store: Any,
    record: UploadRecord,
    *,
    subject: str,
    retry_unknown_outcome: bool,
) -> dict[str, Any]:
    """Send an upload, unless an earlier try of the task did or may have done so.

    :param send: sends the upload and returns the task's return value.
    :param store: the task's state store.
    :param record: this upload.
    :param subject: its source URL, redacted.
    :param retry_unknown_outcome: resend it if an earlier try may have sent it.
    :returns: the return value of ``send``, from this try or an earlier one.
    :raises InvalidInputError: if the record of an earlier try is damaged; nothing was sent.
    :raises OutcomeUnknownError: if an earlier try was killed while sending it.
    :raises CloudStoreError: if the store is unavailable; nothing was sent, and Airflow's retries apply.
    """
    earlier = UploadRecord.from_json(_use_store(lambda: store.get(STATE_KEY), "read", subject))
    if earlier and earlier.settles(record):
        if earlier.result is not None:
            log.info("Try %s queued the upload of %s before it was killed; returning its result", earlier.try_number, subject)
            return earlier.result
        reason = f"try {earlier.try_number} ended while sending this upload (at {earlier.sent_at})"
        if not retry_unknown_outcome:
            _record(store, replace(earlier, state=UploadState.UNKNOWN, max_tries=record.max_tries))
            raise OutcomeUnknownError(reason, operation=_OPERATION, subject=subject, sent=True)
        log.warning("%s '%s': %s; resending it because retry_unknown_outcome=True", _OPERATION, subject, reason)
    _use_store(lambda: store.set(STATE_KEY, record.to_json()), "written", subject)
    try:
        result = send()
    except (OutcomeUnknownError, TransientServiceError):
        _record(store, replace(record, state=UploadState.UNKNOWN))
        raise
    except CloudStoreError:  # certainly not queued
        _record(store, None)
        raise
    if queued := record.queued(result):
        _record(store, queued)
    return result


def forget_upload(context: Context) -> None:
    """Delete the record of an upload. An ``on_success_callback``: by then Airflow has stored the task's success."""
    store = task_state_store(context)
    if store is not None:
        _record(store, None)


def _record(store: Any, record: UploadRecord | None) -> None:
    """Replace or delete the record. The upload's outcome does not depend on whether that succeeds."""
    try:
        if record is None:
            store.delete(STATE_KEY)
        else:
            store.set(STATE_KEY, record.to_json())
    except Exception as error:  # noqa: BLE001  (Airflow's, or any of a custom state store backend)
        log.warning(
            "Could not record the outcome of the upload in the task's state store (%s): a later try may not know it",
            type(error).__name__,
        )


def _use_store(use: Callable[[], Any], verb: str, subject: str) -> Any:
    try:
        return use()
    except Exception as error:  # noqa: BLE001  (Airflow's, or any of a custom state store backend; the task ends with it)
        failed = type(error).__name__
    reason = f"the task's state store could not be {verb} ({failed})"
    raise CloudStoreError(reason, operation=_OPERATION, subject=subject, advice=_NOT_RECORDED)
