"""Waits for a file on the worker, for operators and the sensor: poll, defer to the triggerer, and validate its event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pendulum
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, conf
from pendulum import DateTime

from airflow_provider_cloudstore.operators.arguments import validate_flags, validate_positive
from airflow_provider_cloudstore.operators.base import CloudStoreOperator
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.results import DownloadLink
    from airflow_provider_cloudstore.protocol.waiting import FileWait

_GRACE = timedelta(minutes=2)  # added to the trigger's deadline for Airflow's own timeout: the triggerer may be down
_MARGIN = timedelta(seconds=1)  # end before Airflow's execution_timeout, whose error gives no reason


class _WaitingTask(Protocol):
    """What a wait needs of its task: an operator, or the sensor."""

    file_id: Any
    cloudstore_conn_id: str
    deferrable: bool
    timeout: float
    execution_timeout: timedelta | None

    def defer(self, *, trigger: Any, method_name: str, timeout: timedelta | None) -> NoReturn:
        """Let the triggerer wait, and resume in a method of the task."""


class WaitingOperator(CloudStoreOperator):
    """Base of the operators that use a download link, and can wait for the file first."""

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        wait_for_file: bool = False,
        poll_interval: float = 10.0,
        timeout: float = 3600.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_positive(poll_interval=poll_interval, timeout=timeout)
        validate_flags(wait_for_file=wait_for_file, deferrable=deferrable)
        self.file_id: Any = file_id
        self.wait_for_file = wait_for_file
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> Any:
        """Use the link, with ``wait_for_file`` once the file is available."""
        with self._open_hook() as hook:
            return self._use_link(context, hook, wait_for_link(self, context, hook) if self.wait_for_file else None)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Resume after a deferred wait, with a fresh link so that it is valid for as long as possible."""
        validate_event(self, context, event)
        with self._open_hook() as hook:
            return self._use_link(context, hook, create_fresh_link(self, hook))

    def _use_link(self, context: Context, hook: CloudStoreHook, link: DownloadLink | None) -> Any:
        raise NotImplementedError


def wait_for_link(task: WaitingOperator, context: Context, hook: CloudStoreHook) -> DownloadLink:
    """Poll until a link can be created; a deferrable task defers after a few seconds.

    :raises FileWaitTimeoutError: if the file is not available in time.
    :raises CloudStoreError: if waiting longer cannot help.
    """
    from airflow_provider_cloudstore.exceptions import CloudStoreError
    from airflow_provider_cloudstore.metrics import counted_wait
    from airflow_provider_cloudstore.protocol.waiting import FileWait, file_wait_timeout

    wait = FileWait(str(task.file_id), task.poll_interval, pendulum.now("UTC").add(seconds=task.timeout))
    with counted_wait():
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


def create_fresh_link(task: WaitingOperator, hook: CloudStoreHook) -> DownloadLink:
    """Create a link after a deferred wait. The trigger saw the file, so "not found" may come from a lagging replica."""
    from airflow_provider_cloudstore.exceptions import CloudStoreError, NotFoundError, ServiceError
    from airflow_provider_cloudstore.protocol.waiting import INCONCLUSIVE_POLLS, INCONCLUSIVE_SECONDS, InconclusiveResponses

    inconclusive = InconclusiveResponses()
    while True:
        try:
            return hook.create_download_link(task.file_id)
        except CloudStoreError as error:
            says_little = error.inconclusive or isinstance(error, (NotFoundError, ServiceError))
            if not says_little or not inconclusive.tolerates(pendulum.now("UTC")):
                raise
            task.log.warning("Inconclusive response for file '%s' (%s); retrying", task.file_id, error.reason)
        time.sleep(min(task.poll_interval, INCONCLUSIVE_SECONDS / (INCONCLUSIVE_POLLS - 1)))


def defer_until_available(task: _WaitingTask, context: Context, wait: FileWait, *, poll_interval: float) -> NoReturn:
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


def validate_event(task: _WaitingTask, context: Context, event: Mapping[str, Any]) -> None:
    """Return if the event reports that the file is available.

    :raises FileWaitTimeoutError: if the wait exceeded the task's ``timeout``.
    :raises AirflowTaskTimeout: if it exceeded ``execution_timeout``.
    :raises CloudStoreError: the error that ended the wait in the triggerer.
    :raises AirflowException: if the event is not from this trigger.
    """
    from airflow_provider_cloudstore.exceptions import CloudStoreError
    from airflow_provider_cloudstore.metrics import counted_wait

    with counted_wait():
        match event:
            case {"status": "available"}:
                return
            case {"status": "timeout", "message": str(message)}:
                raise _timeout_error(task, context, message)
            case {"status": "failed", "error": dict(error)}:
                raise CloudStoreError.from_dict(error)
            case _:
                raise AirflowException(f"Unexpected trigger event with the keys {sorted(event)}")


def _timeout_error(task: _WaitingTask, context: Context, message: str) -> BaseException:
    from airflow_provider_cloudstore.protocol.waiting import file_wait_timeout

    ends = _execution_ends(task, context)
    if task.execution_timeout and ends and pendulum.now("UTC") >= ends:
        allowed = task.execution_timeout.total_seconds()
        return AirflowTaskTimeout(f"execution_timeout exceeded: {file_wait_timeout(str(task.file_id), allowed, message)}")
    return file_wait_timeout(str(task.file_id), task.timeout, message)


def _execution_ends(task: _WaitingTask, context: Context) -> DateTime | None:
    ti = context.get("ti")
    if not task.execution_timeout or ti is None:
        return None
    return pendulum.instance(ti.start_date) + task.execution_timeout - _MARGIN
