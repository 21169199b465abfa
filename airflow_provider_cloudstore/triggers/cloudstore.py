"""Waits in the triggerer. A trigger only reads: it restarts with the triggerer, and would resend a POST."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pendulum
from airflow.providers.common.compat.triggers import BaseEventTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent
from pendulum import DateTime

from airflow_provider_cloudstore.assets.cloudstore import PAYLOAD_FILE_IDS
from airflow_provider_cloudstore.compat import asset_stores
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.operations import validate_id
from airflow_provider_cloudstore.protocol.waiting import RECORD_AFTER_SECONDS, FileWait, FileWatch, is_duration
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID


def _serialized(trigger: BaseTrigger, *arguments: str) -> tuple[str, dict[str, Any]]:
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}", {name: getattr(trigger, name) for name in arguments}


class FileAvailableTrigger(BaseTrigger):
    """Waits until a download link for a file can be created. The event reports only that, without the link.

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
        if not is_duration(poll_interval):
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
        return _serialized(self, "cloudstore_conn_id", "file_id", "poll_interval", "deadline")

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


_MAX_WATCHED = 1000
_IDLE = 3600.0  # Airflow restarts a run() that returns after two seconds


class FileAvailableEventTrigger(BaseEventTrigger):
    """Sends an event when files become available, for the ``AssetWatcher`` of an asset (Airflow 3).

    Each file is reported at least once, and exactly once unless the triggerer is killed within seconds of the event. Before
    Airflow 3.3, a triggerer that restarts reports every available file again. The event's payload is ``{"file_ids": [...]}``,
    the files that one round of polls found; a DAG scheduled on the asset reads it with
    :func:`~airflow_provider_cloudstore.assets.cloudstore.triggering_file_ids`. No error ends the watch: after one that polling
    cannot resolve, it polls at longer intervals and logs the reason.

    :param file_ids: the files, at most 1,000.
    :param poll_interval: seconds between two polls of a file.
    :param cloudstore_conn_id: the Airflow connection.
    :raises ValueError: if ``poll_interval``, the connection id or the number of files is invalid.
    :raises InvalidInputError: if a file id is invalid.
    """

    def __init__(self, file_ids: Sequence[str], poll_interval: float = 30.0, cloudstore_conn_id: str = DEFAULT_CONN_ID) -> None:
        super().__init__()
        if not isinstance(file_ids, (list, tuple)):
            raise ValueError(f"file_ids must be a list of file ids, not a {type(file_ids).__name__}")
        if not is_duration(poll_interval):
            raise ValueError(f"poll_interval must be a number of seconds above 0, not {poll_interval!r}")
        if not (isinstance(cloudstore_conn_id, str) and cloudstore_conn_id):
            raise ValueError("cloudstore_conn_id must be a non-empty string")
        self.file_ids = list(dict.fromkeys(validate_id(file_id, "file_id") for file_id in file_ids))
        if not 0 < len(self.file_ids) <= _MAX_WATCHED:
            raise ValueError(f"file_ids must be a list of 1 to {_MAX_WATCHED:,} file ids, not {len(self.file_ids):,}")
        self.poll_interval = poll_interval
        self.cloudstore_conn_id = cloudstore_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger's path and arguments, which Airflow stores in clear text: they contain no secret."""
        return _serialized(self, "file_ids", "poll_interval", "cloudstore_conn_id")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll indefinitely; send one event for all files that a round of polls finds.

        Of events that are stored together, Airflow's scheduler can hand a DAG run the first only (apache/airflow 54659).
        """
        from airflow_provider_cloudstore.assets.reported import ReportedFiles

        reported = ReportedFiles(asset_stores(self), self.cloudstore_conn_id)
        watch = FileWatch(self.poll_interval)
        await asyncio.sleep(watch.first_pause())
        missing = [file_id for file_id in self.file_ids if not await reported.knows(file_id)]
        while True:
            due = watch.due(missing, time.monotonic())
            errors = await self._poll(due)
            found = [file_id for file_id in due if file_id not in errors]
            for file_id in found:
                self.log.info("File '%s' is available", file_id)
            if found:
                yield TriggerEvent({PAYLOAD_FILE_IDS: found})
            for line, permanent in watch.record(errors, time.monotonic()):
                self.log.log(logging.WARNING if permanent else logging.INFO, line)
            missing = [file_id for file_id in missing if file_id not in found]
            if found:
                await asyncio.sleep(RECORD_AFTER_SECONDS)
            await reported.record(found)
            await asyncio.sleep(watch.pause(missing, time.monotonic()) if missing or reported.pending else _IDLE)

    async def _poll(self, file_ids: Sequence[str]) -> dict[str, CloudStoreError]:
        """Poll once.

        :returns: the error of each file that is not available.
        """
        if not file_ids:
            return {}
        try:
            # Opened for each round, to pick up a changed connection, and to have nothing open at the yield.
            async with CloudStoreAsyncHook(self.cloudstore_conn_id) as hook:
                outcomes = await asyncio.gather(*(hook.poll_file(file_id) for file_id in file_ids))
        except CloudStoreError as error:  # the connection is missing or invalid
            return dict.fromkeys(file_ids, error)
        return {file_id: error for file_id, error in zip(file_ids, outcomes, strict=True) if error is not None}
