"""Waits for a file, and does nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pendulum
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, BaseSensorOperator, Context, XComArg, conf

from airflow_provider_cloudstore.assets.cloudstore import attach_file_id
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook, airflow_errors
from airflow_provider_cloudstore.metrics import counted_wait
from airflow_provider_cloudstore.operators.typed import validate_flags
from airflow_provider_cloudstore.protocol.errors import CloudStoreError, FileWaitTimeoutError
from airflow_provider_cloudstore.protocol.waiting import FileWait, file_wait_timeout
from airflow_provider_cloudstore.triggers.cloudstore import defer_until_available, validate_event


class FileAvailableSensor(BaseSensorOperator):
    """Wait until a file is available: until a download link for it can be created (API document, section 4.3).

    An upload is only queued, and the API has no operation that reports its state. "Not found" and an error envelope mean "not
    yet"; 429, 5xx and an unreachable service are waited out. A response that says nothing about the file (a web page, a
    redirect, 403, 405 and the like) ends the wait after three such polls in a row, at least 30 seconds from first to last; with
    ``mode="reschedule"``, which keeps nothing between polls, after the first. Any other error ends the wait at once.
    With ``outlets``, the events of these assets hold the id under ``file_id``.

    :param file_id: the file (templated).
    :param deferrable: wait in the triggerer, without a worker slot; by default as ``[operators] default_deferrable`` says.
    :param cloudstore_conn_id: the Airflow connection (templated).
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")
    ui_color = "#f5ecc8"

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        cloudstore_conn_id: str = CloudStoreHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(deferrable=deferrable)
        self.file_id: Any = file_id
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id
        self._wait: FileWait | None = None

    def execute(self, context: Context) -> Any:
        """Wait; what ``soft_fail``, ``mode`` and the like mean is Airflow's to say."""
        try:
            with counted_wait():
                return super().execute(context)
        except AirflowSensorTimeout:  # Airflow's own words know neither the file nor what the service said
            message = self._wait.message if self._wait else ""
        raise AirflowSensorTimeout(str(file_wait_timeout(self.file_id, self.timeout, message)))

    def poke(self, context: Context) -> bool:
        """Poll once. A deferrable sensor polls for a few seconds, and defers from here if the file does not come."""
        if self._wait is None:
            ends_at = pendulum.now("UTC").add(seconds=self.timeout)
            remembered = self.deferrable or not self.reschedule
            self._wait = FileWait(str(self.file_id), self.poke_interval, ends_at, remembered=remembered)
        with airflow_errors(), CloudStoreHook(self.cloudstore_conn_id) as hook:
            while isinstance(found := hook.poll_file(self.file_id), CloudStoreError):
                now = pendulum.now("UTC")
                if line := self._wait.not_yet(found, now):
                    self.log.info(line)
                if not self.deferrable:
                    return False
                if self._wait.should_defer(now, found):
                    defer_until_available(
                        self, context, self._wait, cloudstore_conn_id=self.cloudstore_conn_id, poll_interval=self.poke_interval
                    )
                time.sleep(self._wait.pause_on_worker(now, found))
        self._file_available(context)
        return True

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """Go on after the triggerer has waited."""
        try:
            with counted_wait():
                validate_event(self, context, event, file_id=str(self.file_id), seconds=self.timeout)
        except FileWaitTimeoutError as error:
            late = str(error)
        else:
            self._file_available(context)
            return
        raise AirflowSensorTimeout(late)

    def _file_available(self, context: Context) -> None:
        self.log.info("File '%s' is there", self.file_id)
        attach_file_id(self, context, self.file_id)
