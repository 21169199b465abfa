"""The worker's side of a wait, for operators and the sensor: poll, defer to the triggerer, and validate its event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pendulum
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout
from pendulum import DateTime

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.metrics import counted_wait
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.waiting import (
    INCONCLUSIVE_POLLS,
    INCONCLUSIVE_SECONDS,
    FileWait,
    InconclusiveResponses,
    file_wait_timeout,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_cloudstore.operators.base import WaitingOperator
    from airflow_provider_cloudstore.protocol.results import DownloadLink
    from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

_GRACE = timedelta(minutes=2)  # added to the trigger's deadline for Airflow's own timeout: the triggerer may be down
_MARGIN = timedelta(seconds=1)  # end before Airflow's execution_timeout, whose error gives no reason


@counted_wait()
def wait_for_link(task: WaitingOperator, context: Context, hook: CloudStoreHook) -> DownloadLink:
    """Poll until a link can be created; a deferrable task defers after a few seconds.

    :raises FileWaitTimeoutError: if the file is not available in time.
    :raises CloudStoreError: if waiting longer cannot help.
    """
    wait = FileWait(str(task.file_id), task.poll_interval, pendulum.now("UTC").add(seconds=task.timeout))
    while isinstance(found := hook.poll_file(task.file_id), CloudStoreError):
        now = pendulum.now("UTC")
        if line := wait.not_yet(found, now):
            task.log.info(line)
        if wait.over(now):
            raise file_wait_timeout(wait.file_id, task.timeout, wait.message)
        if task.deferrable and wait.should_defer(now, found):
            defer_until_available(task, context, wait, poll_interval=task.poll_interval)
        time.sleep((wait.pause_on_worker if task.deferrable else wait.pause)(now, found))
    return found


def poll_for_sensor(sensor: FileAvailableSensor, context: Context, wait: FileWait) -> bool:
    """Whether the file is available: polls once; a deferrable sensor polls for a few seconds, then defers.

    :raises CloudStoreError: if waiting longer cannot help.
    """
    with CloudStoreHook(sensor.cloudstore_conn_id) as hook:
        while isinstance(found := hook.poll_file(sensor.file_id), CloudStoreError):
            now = pendulum.now("UTC")
            if line := wait.not_yet(found, now):
                sensor.log.info(line)
            if not sensor.deferrable:
                return False
            if wait.should_defer(now, found):
                defer_until_available(sensor, context, wait, poll_interval=sensor.poke_interval)
            time.sleep(wait.pause_on_worker(now, found))
    return True


def create_fresh_link(task: WaitingOperator, hook: CloudStoreHook) -> DownloadLink:
    """Create a link after a deferred wait, tolerating the same inconclusive responses as the trigger."""
    inconclusive = InconclusiveResponses()
    while True:
        try:
            return hook.create_download_link(task.file_id)
        except CloudStoreError as error:
            if not inconclusive.tolerates(error, pendulum.now("UTC")):
                raise
            task.log.warning("Inconclusive response for file '%s' (%s); retrying", task.file_id, error.reason)
        time.sleep(min(task.poll_interval, INCONCLUSIVE_SECONDS / (INCONCLUSIVE_POLLS - 1)))


def defer_until_available(
    task: WaitingOperator | FileAvailableSensor, context: Context, wait: FileWait, *, poll_interval: float
) -> NoReturn:
    """Defer the wait to the triggerer; the task resumes in ``execute_complete``.

    The wait ends with ``execution_timeout`` if that is shorter: Airflow 3 does not enforce it on deferred tasks.
    """
    from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger  # Airflow's triggers are slow to import

    now = pendulum.now("UTC")
    deadline = min(wait.deadline, _execution_ends(task, context) or DateTime.max.replace(tzinfo=now.tzinfo))
    trigger = FileAvailableTrigger(task.cloudstore_conn_id, wait.file_id, poll_interval, deadline.to_iso8601_string())
    # A plain timedelta: Airflow 3 cannot serialize pendulum's, and fails the task without a reason.
    outage_limit = timedelta(seconds=(deadline - now).total_seconds()) + _GRACE
    task.defer(trigger=trigger, method_name="execute_complete", timeout=outage_limit)


@counted_wait()
def validate_event(task: WaitingOperator | FileAvailableSensor, context: Context, event: Mapping[str, Any]) -> None:
    """Return if the event reports that the file is available.

    :raises FileWaitTimeoutError: if the wait exceeded the task's ``timeout``.
    :raises AirflowTaskTimeout: if it exceeded ``execution_timeout``.
    :raises CloudStoreError: the error that ended the wait in the triggerer.
    :raises AirflowException: if the event is not from this trigger.
    """
    match event:
        case {"status": "available"}:
            return
        case {"status": "timeout", "message": str(message)}:
            ends = _execution_ends(task, context)
            if task.execution_timeout and ends and pendulum.now("UTC") >= ends:
                allowed = task.execution_timeout.total_seconds()
                raise AirflowTaskTimeout(f"execution_timeout exceeded: {file_wait_timeout(str(task.file_id), allowed, message)}")
            raise file_wait_timeout(str(task.file_id), task.timeout, message)
        case {"status": "failed", "error": dict(error)}:
            raise CloudStoreError.from_dict(error)
        case _:
            raise AirflowException(f"Unexpected trigger event with the keys {sorted(event)}")


def _execution_ends(task: WaitingOperator | FileAvailableSensor, context: Context) -> DateTime | None:
    if not task.execution_timeout:
        return None
    return pendulum.instance(context["ti"].start_date) + task.execution_timeout - _MARGIN
