"""Waits in the triggerer, and only reads there: a trigger starts again when the triggerer does, and would send a POST twice."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import pendulum
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowNotFoundException,
    AirflowTaskTimeout,
    BaseOperator,
    Context,
)
from airflow.providers.common.compat.triggers import BaseEventTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent
from pendulum import DateTime

from airflow_provider_cloudstore.assets.cloudstore import EXTRA_FILE_ID
from airflow_provider_cloudstore.compat import asset_stores
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook, airflow_errors
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, ConfigurationError
from airflow_provider_cloudstore.protocol.operations import validate_present
from airflow_provider_cloudstore.protocol.waiting import RECORD_AFTER_SECONDS, FileWait, FileWatch, file_wait_timeout


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be created. The event reports only that, without the link.

    The event is ``{"status": "available"}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "failed", "error": {...}}``.

    :param cloudstore_conn_id: the Airflow connection.
    :param file_id: the file.
    :param poll_interval: seconds between two polls.
    :param deadline: when the wait ends: ISO 8601, with its offset from UTC.
    :raises ValueError: if one of them is invalid.
    """

    def __init__(self, cloudstore_conn_id: str, file_id: str, poll_interval: float, deadline: str) -> None:
        super().__init__()
        ends_at = pendulum.parse(deadline, exact=True)
        if not isinstance(ends_at, DateTime) or not ("+" in deadline[10:] or "-" in deadline[10:] or deadline.endswith("Z")):
            raise ValueError(f"deadline must be a moment in ISO 8601 with its offset from UTC, not {deadline!r}")
        if not 0 < poll_interval < math.inf:
            raise ValueError(f"poll_interval must be a number of seconds above 0, not {poll_interval!r}")
        if not (isinstance(file_id, str) and file_id and isinstance(cloudstore_conn_id, str) and cloudstore_conn_id):
            raise ValueError("file_id and cloudstore_conn_id must be texts that are not empty")
        self.cloudstore_conn_id = cloudstore_conn_id
        self.file_id = file_id
        self.poll_interval = poll_interval
        self.deadline = deadline
        self._ends_at = ends_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's path and arguments, as Airflow stores them in clear: no secret is among them."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "cloudstore_conn_id": self.cloudstore_conn_id,
                "file_id": self.file_id,
                "poll_interval": self.poll_interval,
                "deadline": self.deadline,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the file is available, the deadline has passed, or polling cannot help; then send one event."""
        wait = FileWait(self.file_id, self.poll_interval, self._ends_at)
        # Before the connection is read: a triggerer that starts with thousands of these is not held up by all of them at once.
        await asyncio.sleep(wait.first_pause(pendulum.now("UTC")))
        try:
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                event = await self._poll_until(hook, wait)
        except CloudStoreError as error:
            event = {"status": "failed", "error": error.to_dict()}
        yield TriggerEvent(event)

    async def _poll_until(self, hook: CloudStoreAsyncHook, wait: FileWait) -> dict[str, Any]:
        while (missing := await hook.poll_file(self.file_id)) is not None:
            now = pendulum.now("UTC")
            if line := wait.not_yet(missing, now):
                self.log.info(line)
            if wait.over(now):
                return {"status": "timeout", "message": wait.message}
            await asyncio.sleep(wait.pause(now, missing))
        return {"status": "available"}


_MAX_WATCHED = 1000
_IDLE = 3600.0  # a run() that returns is started again after two seconds


class FileAvailableEventTrigger(BaseEventTrigger):
    """Sends an event for each file that becomes available, for the ``AssetWatcher`` of an asset (Airflow 3).

    Each file is reported at least once, and once unless the triggerer is killed within seconds of it. Before Airflow 3.3 a
    triggerer that starts again reports every file that is there once more. The event's payload is ``{"file_id"}``; a DAG that is
    scheduled on the asset reads it with
    :func:`~airflow_provider_cloudstore.assets.cloudstore.triggering_file_ids`. No error ends the watch: it polls on, at longer
    intervals where that cannot help, and logs why.

    :param file_ids: the files, at most 1,000.
    :param poll_interval: seconds between two polls of a file.
    :param cloudstore_conn_id: the Airflow connection.
    :raises ValueError: if ``poll_interval``, the connection id or the number of files makes no sense.
    :raises InvalidInputError: if a file id cannot be one.
    """

    def __init__(
        self, file_ids: Sequence[str], poll_interval: float = 30.0, cloudstore_conn_id: str = CloudStoreHook.default_conn_name
    ) -> None:
        super().__init__()
        if isinstance(file_ids, str) or not 0 < len(file_ids) <= _MAX_WATCHED:
            raise ValueError(f"file_ids must be a list of 1 to {_MAX_WATCHED:,} files")
        if not 0 < poll_interval < math.inf:
            raise ValueError(f"poll_interval must be a number of seconds above 0, not {poll_interval!r}")
        if not (isinstance(cloudstore_conn_id, str) and cloudstore_conn_id):
            raise ValueError("cloudstore_conn_id must be a text that is not empty")
        self.file_ids = list(dict.fromkeys(validate_present(file_id, "file_id") for file_id in file_ids))
        self.poll_interval = poll_interval
        self.cloudstore_conn_id = cloudstore_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's path and arguments, as Airflow stores them in clear: no secret is among them."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "file_ids": self.file_ids,
                "poll_interval": self.poll_interval,
                "cloudstore_conn_id": self.cloudstore_conn_id,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll for ever; one event for each file."""
        from airflow_provider_cloudstore.assets.reported import ReportedFiles

        reported = ReportedFiles(asset_stores(self), self.cloudstore_conn_id)
        watch = FileWatch(self.poll_interval)
        await asyncio.sleep(watch.first_pause())
        missing = [file_id for file_id in self.file_ids if not await reported.knows(file_id)]
        while True:
            errors = await self._poll(watch, missing)
            found = [file_id for file_id in missing if file_id not in errors]
            for file_id in found:
                self.log.info("File '%s' is there", file_id)
                yield TriggerEvent({EXTRA_FILE_ID: file_id})
            missing = list(errors)
            if found:
                await asyncio.sleep(RECORD_AFTER_SECONDS)
            await reported.record(found)
            await asyncio.sleep(watch.pause(list(errors.values())) if missing or reported.pending else _IDLE)

    async def _poll(self, watch: FileWatch, file_ids: Sequence[str]) -> dict[str, CloudStoreError]:
        """Poll once.

        :returns: why there is no link, for each file that is not there.
        """
        if not file_ids:
            return {}
        errors: dict[str, CloudStoreError] = {}
        try:
            # Opened for each round: a connection that was changed is read again, and nothing is open at the yield.
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                answers = await asyncio.gather(*(hook.poll_file(file_id) for file_id in file_ids))
            errors = {file_id: error for file_id, error in zip(file_ids, answers, strict=True) if error is not None}
        except AirflowNotFoundException:
            errors = dict.fromkeys(file_ids, ConfigurationError(f"there is no connection '{self.cloudstore_conn_id}'"))
        except CloudStoreError as error:  # the connection cannot be used
            errors = dict.fromkeys(file_ids, error)
        for file_id, missing in errors.items():
            if line := watch.not_yet(f"File '{file_id}'", missing):
                self.log.info(line)
        return errors


_GRACE = timedelta(minutes=2)  # what Airflow waits beyond the trigger's own deadline, for a triggerer that is not there
_MARGIN = timedelta(seconds=1)  # to be before Airflow with the news that execution_timeout is over, because it gives no reason


def defer_until_available(
    task: BaseOperator, context: Context, wait: FileWait, *, cloudstore_conn_id: str, poll_interval: float
) -> NoReturn:
    """Hand the waiting over to the triggerer; ``task.execute_complete(context, event)`` is what goes on after it.

    The wait ends with ``execution_timeout`` if that is shorter: Airflow 3 itself does not watch it while a task is deferred.

    :param task: the task that waits.
    :param context: its context.
    :param wait: the wait as it stands.
    :param cloudstore_conn_id: the Airflow connection.
    :param poll_interval: seconds between two polls.
    """
    now = pendulum.now("UTC")
    deadline = min(wait.deadline, _execution_ends(task, context) or DateTime.max.replace(tzinfo=now.tzinfo))
    trigger = FileAvailableTrigger(cloudstore_conn_id, wait.file_id, poll_interval, deadline.to_iso8601_string())
    # A plain timedelta: Airflow 3 cannot send pendulum's kind to its supervisor, and fails the task without a reason.
    outage_limit = timedelta(seconds=(deadline - now).total_seconds()) + _GRACE
    task.defer(trigger=trigger, method_name="execute_complete", timeout=outage_limit)


def validate_event(task: BaseOperator, context: Context, event: Mapping[str, Any], *, file_id: str, seconds: float) -> None:
    """Return if the event says that the file is there.

    :param task: the task that waited.
    :param context: its context.
    :param event: the trigger's event.
    :param file_id: the file.
    :param seconds: how long the wait was allowed to take.
    :raises FileWaitTimeoutError: if the wait took too long.
    :raises AirflowTaskTimeout: if it took longer than ``execution_timeout``.
    :raises CloudStoreError: what ended the wait in the triggerer.
    :raises AirflowException: if the event is none of this trigger's.
    """
    match event:
        case {"status": "available"}:
            return
        case {"status": "timeout", "message": str(message)}:
            ends = _execution_ends(task, context)
            if task.execution_timeout and ends and pendulum.now("UTC") >= ends:
                allowed = task.execution_timeout.total_seconds()
                raise AirflowTaskTimeout(f"execution_timeout is over: {file_wait_timeout(file_id, allowed, message)}")
            with airflow_errors():
                raise file_wait_timeout(file_id, seconds, message)
        case {"status": "failed", "error": dict(error)}:
            with airflow_errors():
                raise CloudStoreError.from_dict(error)
        case _:
            raise AirflowException(f"The trigger sent an event that is none of its own, with the keys {sorted(event)}")


def _execution_ends(task: BaseOperator, context: Context) -> DateTime | None:
    if not task.execution_timeout:
        return None
    return pendulum.instance(context["ti"].start_date) + task.execution_timeout - _MARGIN
