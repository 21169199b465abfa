"""Waits in the triggerer. The trigger only asks for links: it restarts with the triggerer, which would repeat a call.

With the keys of a connection, its hook also asks for a token (``POST /authorize``), which can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook
from airflow_provider_cloudstore.protocol.file_wait import FileWait


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be created. The event does not contain the link.

    The event is ``{"status": "available", "file_id": ...}`` or ``{"status": "failed", "file_id": ..., "error": {...}}``.

    :param cloudstore_conn_id: The Airflow connection.
    :param file_id: The file.
    :param poll_interval: Seconds between two polls.
    :param timeout: Maximum seconds to wait.
    :param began: When the wait began (ISO 8601 with a UTC offset), so that it ends on time after a restart.
    :param not_before: The end of the pause that the service asked for, in the same format; in the past if it asked for none.
    """

    def __init__(
        self, cloudstore_conn_id: str, file_id: str, poll_interval: float, timeout: float, began: str, *, not_before: str
    ) -> None:
        super().__init__()
        self.cloudstore_conn_id = cloudstore_conn_id
        self.file_id = file_id
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.began = began
        self.not_before = not_before

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger's path and arguments. Airflow stores them in clear text, so they contain no secret."""
        names = ("cloudstore_conn_id", "file_id", "poll_interval", "timeout", "began", "not_before")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the file is available, the wait is over, or polling again cannot help; then send one event."""
        event: dict[str, Any] = {"status": "available", "file_id": self.file_id}
        try:
            began, not_before = datetime.fromisoformat(self.began), datetime.fromisoformat(self.not_before)
            wait = FileWait(self.file_id, self.poll_interval, self.timeout, began, not_before)
            # Sleep before reading the connection: a triggerer that starts thousands of triggers must not read for all at once.
            await asyncio.sleep(wait.first_pause(datetime.now(UTC)))
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                while isinstance(polled := await hook.poll_file(wait.file_id), CloudStoreError):  # noqa: ASYNC110  (a remote API)
                    await asyncio.sleep(wait.next_pause_or_raise(polled, datetime.now(UTC), self.log.info))
        except CloudStoreError as error:
            event = {"status": "failed", "file_id": self.file_id, "error": error.to_dict()}
        yield TriggerEvent(event)
