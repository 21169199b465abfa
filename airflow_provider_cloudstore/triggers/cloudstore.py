"""Waits in the triggerer. A trigger only reads: it restarts with the triggerer, and would resend a POST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow_provider_cloudstore.compat import BaseTrigger, TriggerEvent
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook
from airflow_provider_cloudstore.protocol.waiting import FileWait


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be created. The event does not contain the link.

    The event is ``{"status": "available"}`` or ``{"status": "failed", "error": {...}}``.

    :param cloudstore_conn_id: the Airflow connection.
    :param file_id: the file.
    :param poll_interval: seconds between two polls.
    :param timeout: maximum seconds to wait.
    :param began: when the wait began, so that it ends on time after a restart: ISO 8601 with a UTC offset.
    """

    def __init__(self, cloudstore_conn_id: str, file_id: str, poll_interval: float, timeout: float, began: str) -> None:
        super().__init__()
        self.cloudstore_conn_id = cloudstore_conn_id
        self.file_id = file_id
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.began = began

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's path and arguments, which Airflow stores in clear text: they contain no secret."""
        names = ("cloudstore_conn_id", "file_id", "poll_interval", "timeout", "began")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the file is available, the wait is over, or polling cannot help; then send one event."""
        event: dict[str, Any] = {"status": "available"}
        try:
            wait = FileWait(self.file_id, self.poll_interval, self.timeout, datetime.fromisoformat(self.began))
            # Before the connection is read, so that a triggerer that starts thousands of these is not blocked by all at once.
            await asyncio.sleep(wait.first_pause(datetime.now(UTC)))
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                await self._poll(hook, wait)
        except CloudStoreError as error:
            event = {"status": "failed", "error": error.to_dict()}
        yield TriggerEvent(event)

    async def _poll(self, hook: CloudStoreAsyncHook, wait: FileWait) -> None:
        while (missing := await hook.poll_file(wait.file_id)) is not None:
            now = datetime.now(UTC)
            if line := wait.not_yet(missing, now):
                self.log.info(line)
            await asyncio.sleep(wait.pause(now, missing))
