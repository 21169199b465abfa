"""Waits in the triggerer. A trigger only reads: it restarts with the triggerer, and would resend a POST."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pendulum
from airflow.triggers.base import BaseTrigger, TriggerEvent
from pendulum import DateTime

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook
from airflow_provider_cloudstore.protocol.waiting import FileWait


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be created. The event does not contain the link.

    The event is ``{"status": "available"}``, ``{"status": "timeout", "message": ...}`` or
    ``{"status": "failed", "error": {...}}``.

    :param cloudstore_conn_id: the Airflow connection.
    :param file_id: the file.
    :param poll_interval: seconds between two polls.
    :param deadline: the end of the wait: ISO 8601 with a UTC offset.
    :raises ValueError: if one of them is invalid.
    """

    def __init__(self, cloudstore_conn_id: str, file_id: str, poll_interval: float, deadline: str) -> None:
        super().__init__()
        ends_at = pendulum.parse(deadline, exact=True)
        if not isinstance(ends_at, DateTime) or not ("+" in deadline[10:] or "-" in deadline[10:] or deadline.endswith("Z")):
            raise ValueError(f"deadline must be an ISO 8601 timestamp with a UTC offset, not {deadline!r}")
        if not isinstance(poll_interval, (int, float)) or not 0 < poll_interval < math.inf:
            raise ValueError(f"poll_interval must be a number of seconds above 0, not {poll_interval!r}")
        if not (isinstance(file_id, str) and file_id and isinstance(cloudstore_conn_id, str) and cloudstore_conn_id):
            raise ValueError("file_id and cloudstore_conn_id must be non-empty strings")
        self.cloudstore_conn_id = cloudstore_conn_id
        self.file_id = file_id
        self.poll_interval = poll_interval
        self.deadline = deadline
        self._ends_at = ends_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's path and arguments, which Airflow stores in clear text: they contain no secret."""
        names = ("cloudstore_conn_id", "file_id", "poll_interval", "deadline")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the file is available, the deadline has passed, or polling cannot help; then send one event."""
        wait = FileWait(self.file_id, self.poll_interval, self._ends_at)
        # Before the connection is read, so that a triggerer that starts thousands of these is not blocked by all at once.
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
