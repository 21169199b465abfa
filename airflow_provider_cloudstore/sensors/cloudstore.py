"""Waits for a file as a sensor, with Airflow's ``mode``, ``soft_fail`` and timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    conf,
)

from airflow_provider_cloudstore.operators.arguments import validate_flags
from airflow_provider_cloudstore.operators.waiting import defer_until_available, validate_event
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_cloudstore.protocol.waiting import FileWait


class FileAvailableSensor(BaseSensorOperator):
    """Wait until a file is available: until a download link for it can be created (API document, section 4.3).

    An upload is only queued, and the API has no operation that reports its state. "Not found" and an error envelope mean "not
    yet"; 429, 5xx and an unreachable service are waited out. A response that says nothing about the file (a web page, a
    redirect, 403, 405 and the like) ends the wait after three such polls in a row, at least 30 seconds from first to last; in
    ``mode="reschedule"``, which keeps nothing between polls, only ``timeout`` does. Any other error ends the wait at once.
    ``soft_fail`` skips the task if the wait exceeds ``timeout`` or ``execution_timeout``; a permanent error, such as an invalid
    connection or a rejected token, still fails it, without a retry. Asset events of the task's ``outlets`` hold the id under
    ``file_id``.

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
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_flags(deferrable=deferrable)
        self.file_id: Any = file_id
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id
        self._wait: FileWait | None = None

    def execute(self, context: Context) -> Any:
        """Wait; Airflow handles ``mode`` and the like."""
        from airflow_provider_cloudstore.metrics import counted_wait
        from airflow_provider_cloudstore.protocol.waiting import file_wait_timeout

        try:
            with counted_wait():
                return self._limit_soft_fail(super().execute, context)
        except AirflowSensorTimeout:  # its message names neither the file nor the service's response
            message = self._wait.message if self._wait else ""
        raise AirflowSensorTimeout(str(file_wait_timeout(self.file_id, self.timeout, message)))

    def poke(self, context: Context) -> bool:
        """Poll once. A deferrable sensor polls for a few seconds, then defers."""
        from airflow_provider_cloudstore.protocol.waiting import FileWait

        if self._wait is None:
            ends_at = pendulum.now("UTC").add(seconds=self.timeout)
            remembered = self.deferrable or not self.reschedule
            self._wait = FileWait(str(self.file_id), self.poke_interval, ends_at, remembered=remembered)
        available = self._poll(context, self._wait)
        if available:
            self._file_available(context)
        return available

    def _poll(self, context: Context, wait: FileWait) -> bool:
        from airflow_provider_cloudstore.exceptions import CloudStoreError
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

        with CloudStoreHook(self.cloudstore_conn_id) as hook:
            while isinstance(found := hook.poll_file(self.file_id), CloudStoreError):
                now = pendulum.now("UTC")
                if line := wait.not_yet(found, now):
                    self.log.info(line)
                if not self.deferrable:
                    return False
                if wait.should_defer(now, found):
                    defer_until_available(self, context, wait, poll_interval=self.poke_interval)
                time.sleep(wait.pause_on_worker(now, found))
        return True

    def _get_next_poke_interval(self, started_at: Any, run_duration: Callable[[], float], *args: Any, **kwargs: Any) -> float:
        # Airflow's own, for both modes: the only place where a sensor can honor Retry-After.
        interval: float = super()._get_next_poke_interval(started_at, run_duration, *args, **kwargs)
        requested = self._wait.retry_after if self._wait else 0.0
        return max(interval, min(requested, self.timeout - run_duration()))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """Resume after a deferred wait."""
        from airflow_provider_cloudstore.exceptions import FileWaitTimeoutError

        try:
            validate_event(self, context, event)
        except FileWaitTimeoutError as error:
            message = str(error)
        else:
            self._file_available(context)
            return
        raise AirflowSensorTimeout(message)

    def resume_execution(self, *args: Any, **kwargs: Any) -> Any:
        """Resume after a deferral; Airflow calls this."""
        return self._limit_soft_fail(super().resume_execution, *args, **kwargs)

    def _limit_soft_fail(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Limit ``soft_fail`` to timeouts, and apply it to all of them.

        Airflow also skips on ``AirflowFailException``, and on every error after a deferral; but not if ``execution_timeout`` ends
        the pause between two pokes or a deferred wait.
        """
        from airflow_provider_cloudstore.exceptions import PermanentError

        try:
            return run(*args, **kwargs)
        except AirflowSkipException as skip:
            failure = skip.__cause__
            if not (self.soft_fail and isinstance(failure, PermanentError)):
                raise
        except AirflowTaskTimeout as error:
            if not (self.soft_fail or self.never_fail):
                raise
            raise AirflowSkipException(str(error)) from error
        raise failure

    def _file_available(self, context: Context) -> None:
        from airflow_provider_cloudstore.assets.cloudstore import attach_file_id

        self.log.info("File '%s' is available", self.file_id)
        attach_file_id(self, context, self.file_id)
