"""Waits in the triggerer, and only reads there: a trigger starts again when the triggerer does, and would send a POST twice."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn

import pendulum
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, BaseOperator, Context
from airflow.triggers.base import BaseTrigger, TriggerEvent
from pendulum import DateTime

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, airflow_errors
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.waiting import FileWait, file_not_available


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be made. The event says only that; the link is not in it.

    The event is ``{"status": "available"}``, ``{"status": "timeout", "words": ...}`` or ``{"status": "failed", "error": {...}}``.

    :param cloudstore_conn_id: the Airflow connection.
    :param file_id: the file.
    :param poll_interval: seconds between two looks.
    :param deadline: when the wait ends: ISO 8601, with its offset from UTC.
    :raises ValueError: if one of them makes no sense.
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
        """Look until the file is there, the deadline has come, or looking again cannot help; then send one event."""
        wait = FileWait(self.file_id, self.poll_interval, self._ends_at)
        # Before the connection is read: a triggerer that starts with thousands of these is not held up by all of them at once.
        await asyncio.sleep(wait.first_pause(pendulum.now("UTC")))
        try:
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                event = await self._look_until(hook, wait)
        except CloudStoreError as error:
            event = {"status": "failed", "error": error.to_dict()}
        yield TriggerEvent(event)

    async def _look_until(self, hook: CloudStoreAsyncHook, wait: FileWait) -> dict[str, Any]:
        while (missing := await hook.look_for_file(self.file_id)) is not None:
            now = pendulum.now("UTC")
            if line := wait.not_yet(missing, now):
                self.log.info(line)
            if wait.over(now):
                return {"status": "timeout", "words": wait.words}
            await asyncio.sleep(wait.pause(now, missing))
        return {"status": "available"}


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
    patience = timedelta(seconds=(deadline - now).total_seconds()) + _GRACE
    task.defer(trigger=trigger, method_name="execute_complete", timeout=patience)


def check_event(task: BaseOperator, context: Context, event: Mapping[str, Any], *, file_id: str, seconds: float) -> None:
    """Return if the event says that the file is there.

    :param task: the task that waited.
    :param context: its context.
    :param event: the trigger's event.
    :param file_id: the file.
    :param seconds: how long the wait was allowed to take.
    :raises FileNotAvailable: if the wait took too long.
    :raises AirflowTaskTimeout: if it took longer than ``execution_timeout``.
    :raises CloudStoreError: what ended the wait in the triggerer.
    :raises AirflowException: if the event is none of this trigger's.
    """
    match event:
        case {"status": "available"}:
            return
        case {"status": "timeout", "words": str(words)}:
            ends = _execution_ends(task, context)
            if task.execution_timeout and ends and pendulum.now("UTC") >= ends:
                allowed = task.execution_timeout.total_seconds()
                raise AirflowTaskTimeout(f"execution_timeout is over: {file_not_available(file_id, allowed, words)}")
            with airflow_errors():
                raise file_not_available(file_id, seconds, words)
        case {"status": "failed", "error": dict(error)}:
            with airflow_errors():
                raise CloudStoreError.from_dict(error)
        case _:
            raise AirflowException(f"The trigger sent an event that is none of its own, with the keys {sorted(event)}")


def _execution_ends(task: BaseOperator, context: Context) -> DateTime | None:
    if not task.execution_timeout:
        return None
    return pendulum.instance(context["ti"].start_date) + task.execution_timeout - _MARGIN
