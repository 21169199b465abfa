"""Waits for a file, for operators and the sensor: polls on the worker, defers to the triggerer, and validates its event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_cloudstore.compat import AirflowException, BaseOperator, conf
from airflow_provider_cloudstore.operators.base import (
    CloudStoreOperator,
    FileLink,
    validate_positive,
)

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.file_wait import FileWait

_GRACE = timedelta(minutes=2)  # by which Airflow's timeout exceeds the wait's own timeout: the triggerer may be down for a while

DEFERRABLE: bool = conf.getboolean("operators", "default_deferrable", fallback=False)
"""The default of the parameter ``deferrable``."""


class WaitingOperator(CloudStoreOperator):
    """Base of the operators that can wait for a file.

    :param wait_for_file: Wait until the file is available, as ``FileAvailableSensor`` does.
    :param poll_interval: Seconds between two polls.
    :param timeout: Maximum seconds to wait.
    :param deferrable: Wait in the triggerer, which must be running, and free the worker slot; the default is ``[operators]
        default_deferrable``.
    """

    operator_extra_links = (FileLink(),)

    def __init__(
        self,
        *,
        wait_for_file: bool = False,
        poll_interval: float | timedelta = 10.0,
        timeout: float | timedelta = 3600.0,
        deferrable: bool = DEFERRABLE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wait_for_file = wait_for_file
        self.poll_interval = validate_positive("poll_interval", poll_interval)
        self.timeout = validate_positive("timeout", timeout)
        self.deferrable = deferrable

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Resume after a deferred wait."""
        with self._open_hook() as hook:
            return self._complete(context, hook, available_file(event))

    def _complete(self, context: Context, hook: CloudStoreHook, file_id: Any) -> Any:
        """Do what the task does once its file is available, and return the task's value."""
        raise NotImplementedError

    def _wait_for_file(self, hook: CloudStoreHook, file_id: Any, began: datetime | None = None) -> None:
        """Wait for a file, from now on or since ``began``; after a deferral, :meth:`execute_complete` goes on."""
        from airflow_provider_cloudstore.protocol.file_wait import FileWait

        wait = FileWait(file_id, self.poll_interval, self.timeout, began or datetime.now(UTC))
        while (pause := poll(self, hook, wait, deferrable=self.deferrable)) is not None:
            time.sleep(pause)


def poll(task: BaseOperator, hook: CloudStoreHook, wait: FileWait, *, deferrable: bool) -> float | None:
    """Poll once. Return None if the file is available, or else the seconds until the next poll; with ``deferrable``, defer.

    :raises FileWaitTimeoutError: if the file is not available in time.
    :raises CloudStoreError: if waiting longer cannot help; also if the connection cannot be read.
    """
    from airflow_provider_cloudstore.exceptions import CloudStoreError

    _ = hook.settings  # poll_file would return the error, and the wait might go on
    polled = hook.poll_file(wait.file_id)
    if not isinstance(polled, CloudStoreError):
        task.log.info("File '%s' is available", wait.file_id)
        return None
    pause = wait.next_pause_or_raise(polled, datetime.now(UTC), task.log.info)
    if deferrable:
        _defer(task, hook.cloudstore_conn_id, wait)
    return pause


def _defer(task: BaseOperator, conn_id: str, wait: FileWait) -> NoReturn:
    from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger  # Airflow's triggers are slow to import

    now, ends_at = datetime.now(UTC), wait.began + timedelta(seconds=wait.timeout)
    fails_at = max(now, ends_at) + _GRACE
    task.log.info(
        "Deferring: the triggerer polls for file '%s' until %s UTC. It must be running (airflow triggerer): without it, nothing "
        "polls, and the task fails with 'Trigger timeout' at %s UTC",
        wait.file_id,
        f"{ends_at:%Y-%m-%d %H:%M:%S}",
        f"{fails_at:%Y-%m-%d %H:%M:%S}",
    )
    task.defer(
        trigger=FileAvailableTrigger(
            conn_id, wait.file_id, wait.interval, wait.timeout, wait.began.isoformat(), not_before=wait.not_before.isoformat()
        ),
        method_name="execute_complete",
        timeout=fails_at - now,
    )


def available_file(event: Mapping[str, Any]) -> str:
    """Return the id of the available file from the trigger's event.

    :raises CloudStoreError: the error that ended the wait in the triggerer.
    :raises AirflowException: if the event is not from this trigger.
    """
    from airflow_provider_cloudstore.exceptions import CloudStoreError

    match event:
        case {"status": "available", "file_id": str(file_id)}:
            return file_id
        case {"status": "failed", "error": dict(error)}:
            raise CloudStoreError.from_dict(error)
    raise AirflowException(f"Unexpected trigger event with the keys {sorted(event)}")
