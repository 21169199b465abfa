"""Keeps a retry of a task from sending an upload again.

From Airflow 3.3 on, a record in the task's state store tells a retry what earlier tries did. It is written before the upload is
sent, and updated with its outcome. Before 3.3, an error that follows a queued upload is made permanent, so that none is retried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_cloudstore.exceptions import TASK_ENDED, CloudStoreError, OutcomeUnknownError, PermanentError
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import redact_url

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.results import RemoteUploadXCom

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_upload"
"""The key of the record ``{"sent_at", "max_tries", "result"}``. Everyone with access to the task can read it: it has no secrets.
``result`` is the upload once it is queued; None while it is sent, and if its outcome is unknown."""
_NOT_RETRIED = "Airflow does not retry this task: without a task state store (Airflow 3.3), a retry would upload again."


def send_once(
    send: Callable[[], RemoteUploadXCom], context: Context, url: str, *, retry_unknown_outcome: bool
) -> RemoteUploadXCom:
    """Send an upload, unless an earlier try of the task has sent it or may have sent it.

    Before Airflow 3.3, which has no state store, every try sends it.

    :returns: the upload as the task pushes it: what ``send`` returned in this try or an earlier try.
    :raises OutcomeUnknownError: if an earlier try was killed while sending it.
    """
    store: Any = context.get("task_state_store")
    if store is None:
        return send()
    max_tries, subject = context["ti"].max_tries, redact_url(url)
    earlier = _record_of_earlier_try(store, max_tries)
    if earlier and earlier["result"]:
        log.info("An earlier try queued the upload of %s; it is not sent again", subject)
        return cast("RemoteUploadXCom", earlier["result"])
    if earlier:
        reason = f"an earlier try ended while sending this upload (at {earlier['sent_at']})"
        if not retry_unknown_outcome:
            advice = UploadFromUrl.hints[OutcomeUnknownError]
            raise OutcomeUnknownError(reason, operation=UploadFromUrl.name, subject=subject, advice=advice)
        log.warning("remote upload '%s': %s; resending it because retry_unknown_outcome=True", subject, reason)
    sent_at = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"sent_at": sent_at, "max_tries": max_tries, "result": None}
    store.set(STATE_KEY, record)
    try:
        result = send()
    except CloudStoreError as error:
        was_upload = error.operation == UploadFromUrl.name  # else asking for a token failed
        is_unknown = earlier or (was_upload and error.may_have_effect)
        if not is_unknown:
            _update(store, None)
        raise
    _update(store, {**record, "result": result})
    return result


def _record_of_earlier_try(store: Any, max_tries: int) -> dict[str, Any] | None:
    """Return what an earlier try recorded; None if there was none, or if the task was cleared since, which asks to send again.

    Airflow raises ``max_tries`` when a task is cleared, and does not for a retry.
    """
    found: dict[str, Any] | None = store.get(STATE_KEY)
    return found if found and found["max_tries"] == max_tries else None


def _update(store: Any, record: dict[str, Any] | None) -> None:
    """Replace the record once the upload was sent; with None, delete it, because the upload had no effect. Errors are logged."""
    try:
        store.set(STATE_KEY, record) if record else store.delete(STATE_KEY)
    except Exception as error:  # noqa: BLE001  (a custom state store backend may raise anything)
        what = "Could not record the outcome of the upload in the task's state store (%s): a later try may not know it"
        log.warning(what, type(error).__name__)


@contextmanager
def without_resending(context: Context, file_id: str) -> Iterator[None]:
    """Keep an error that follows a queued upload from causing a resend, and say what to do instead."""
    name = f" as file '{file_id}'" if file_id else ""
    advice = f"The upload is queued{name}. FileAvailableSensor only waits; clearing this task uploads again."
    try:
        yield
    except PermanentError as error:
        raise replace(error, advice=f"{advice} {error.advice}") from None
    except (Exception, *TASK_ENDED) as error:
        if context.get("task_state_store") is not None:  # a retry finds the record
            raise
        ended = error
        if not isinstance(ended, CloudStoreError):
            reason = f"the upload is queued, but the task ended with {type(error).__name__}"
            ended = CloudStoreError(reason, operation=UploadFromUrl.name)
        raise PermanentError(**{**asdict(ended), "advice": f"{advice} {_NOT_RETRIED}"}) from error
