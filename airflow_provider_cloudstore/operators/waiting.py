"""Waits for a file before its link is used: for every operator that does so, on the worker or deferred, with the same answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pendulum
from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.metrics import counted_wait
from airflow_provider_cloudstore.operators.typed import TypedOperator
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.waiting import (
    ODD_POLLS,
    ODD_SECONDS,
    FileWait,
    OddResponses,
    file_wait_timeout,
    is_duration,
)


def validate_durations(**seconds: object) -> None:
    """Refuse what no wait can take, where the DAG is read.

    :param seconds: the arguments, by their names.
    :raises ValueError: if one is no number of seconds above 0.
    """
    for name, value in seconds.items():
        if not is_duration(value):
            example = 60 if name == "poll_interval" else 3600
            raise ValueError(f"{name} must be a number of seconds above 0, such as {example}, not {value!r}")


class WaitingOperator(TypedOperator):
    """Base of the operators that wait for a file; ``execute_complete`` resumes after a deferred wait."""

    file_id: Any
    poll_interval: float
    timeout: float
    deferrable: bool
    cloudstore_conn_id: str

    def _fresh_link(self, hook: CloudStoreHook) -> DownloadLink:
        odd = OddResponses()  # what ends no wait while the trigger polls must not end it here either
        while True:
            try:
                return hook.create_download_link(self.file_id)
            except CloudStoreError as error:
                if not odd.tolerates(error, pendulum.now("UTC")):
                    raise
                self.log.warning("The response says nothing of file '%s' (%s); trying again", self.file_id, error.reason)
            time.sleep(min(self.poll_interval, ODD_SECONDS / (ODD_POLLS - 1)))

    def _validate_event(self, context: Context, event: Mapping[str, Any]) -> None:
        from airflow_provider_cloudstore.triggers.cloudstore import validate_event

        with counted_wait():
            validate_event(self, context, event, file_id=str(self.file_id), seconds=self.timeout)

    @counted_wait()
    def _wait(self, context: Context, hook: CloudStoreHook) -> DownloadLink:
        from airflow_provider_cloudstore.triggers.cloudstore import defer_until_available  # Airflow's triggers are slow to import

        wait = FileWait(str(self.file_id), self.poll_interval, pendulum.now("UTC").add(seconds=self.timeout))
        while isinstance(found := hook.poll_file(self.file_id), CloudStoreError):
            now = pendulum.now("UTC")
            if line := wait.not_yet(found, now):
                self.log.info(line)
            if wait.over(now):
                raise file_wait_timeout(wait.file_id, self.timeout, wait.message)
            if self.deferrable and wait.should_defer(now, found):
                defer_until_available(
                    self, context, wait, cloudstore_conn_id=self.cloudstore_conn_id, poll_interval=self.poll_interval
                )
            time.sleep((wait.pause_on_worker if self.deferrable else wait.pause)(now, found))
        return found
