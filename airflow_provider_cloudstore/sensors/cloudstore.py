"""The sensor that waits for a file, with Airflow's ``mode``, ``soft_fail`` and ``timeout``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.compat import AirflowRescheduleException, AirflowSensorTimeout, BaseSensorOperator
from airflow_provider_cloudstore.operators.base import CloudStoreOperator, FileLink, context_or_empty
from airflow_provider_cloudstore.operators.waiting import DEFERRABLE, available_file, poll

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.file_wait import FileWait


class FileAvailableSensor(CloudStoreOperator, BaseSensorOperator):
    """Wait until a file is available: until a download link for it can be created (``GET /file/download``).

    An upload is only queued, and the API has no operation that reports its state. The guide "Wait for a file" has a table of what
    ends a wait.

    The sensor also takes the arguments of Airflow's ``BaseSensorOperator``, such as ``poke_interval``, ``timeout`` and
    ``soft_fail``. A deferred wait polls every ``poke_interval`` in the triggerer, and ignores ``mode`` and
    ``exponential_backoff``.

    :param file_id: The file (templated).
    :param deferrable: Wait in the triggerer, which must be running, and free the worker slot; the default is ``[operators]
        default_deferrable``.
    :returns: The file's id.
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")
    operator_extra_links = (FileLink(),)
    _wait: FileWait | None = None
    _hook: CloudStoreHook | None = None
    """The hook that all polls of a try share: it reads the connection once, and again when the token is refused."""

    def __init__(self, *, file_id: str | int | XComArg, deferrable: bool = DEFERRABLE, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file_id: Any = file_id
        self.deferrable = deferrable

    def execute(self, context: Context) -> str:
        """Wait, and return the file's id. Airflow's base class handles ``mode`` and similar arguments."""
        context = context_or_empty(context)
        if not context.get("ti"):  # in a unit test, nothing can reschedule the task
            self.mode = "poke"
        self._wait = self._begin_wait()
        with self._open_hook() as hook:
            self._hook = hook
            self._push_file_page(context, hook, self._wait.file_id)
            try:
                super().execute(context)
            except AirflowSensorTimeout:  # its message names neither the file nor the response
                raise self._wait.timed_out() from None
            except AirflowRescheduleException as error:  # Airflow knows no Retry-After
                error.reschedule_date = max(error.reschedule_date, self._wait.not_before)
                raise
        return self._wait.file_id

    def poke(self, context: Context) -> bool:
        """Poll once; if the file is not available, a deferrable sensor defers."""
        wait, hook = self._wait or self._begin_wait(), self._hook or self._open_hook()
        if datetime.now(UTC) < wait.not_before:  # Airflow makes the pauses, and knows no Retry-After
            return False
        return poll(self, hook, wait, deferrable=self.deferrable) is None

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Resume after a deferred wait."""
        file_id = available_file(event)
        with self._open_hook() as hook:  # Airflow asks the process that ends the task for the link "File"
            self._push_file_page(context, hook, file_id)
        return file_id

    def _begin_wait(self) -> FileWait:
        from airflow_provider_cloudstore.protocol.file_wait import FileWait

        return FileWait(self.file_id, self.poke_interval, self.timeout, datetime.now(UTC))
