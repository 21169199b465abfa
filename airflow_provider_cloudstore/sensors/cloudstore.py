"""Waits for a file as a sensor, with Airflow's ``mode``, ``soft_fail`` and timeout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cloudstore.compat import AirflowSensorTimeout, AirflowSkipException, BaseSensorOperator
from airflow_provider_cloudstore.operators.arguments import validate_flags, validate_positive
from airflow_provider_cloudstore.operators.base import CloudStoreOperator, context_or_empty
from airflow_provider_cloudstore.operators.links import FileLink, push_file_page
from airflow_provider_cloudstore.operators.waiting import DEFERRABLE, validate_event, wait_for
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Context, XComArg
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.waiting import FileWait

_ONLY_ON_WORKER = ("exponential_backoff", "max_wait", "silent_fail")


class FileAvailableSensor(CloudStoreOperator, BaseSensorOperator):
    """Wait until a file is available: until a download link for it can be created (``GET /file/download``).

    An upload is only queued, and the API has no operation that reports its state. "Not found" and an error envelope mean "not
    yet"; 429, 5xx and an unreachable service are waited out. A response that says nothing about the file (a web page, a
    redirect, 403, 405 and the like) ends the wait after three such polls in a row, at least 30 seconds from first to last; in
    ``mode="reschedule"``, which keeps nothing between polls, only ``timeout`` does. Any other error ends the wait at once.
    ``soft_fail`` skips the task after any error.

    The return value is the file's id.

    :param file_id: the file (templated).
    :param deferrable: wait in the triggerer, without a worker slot and whatever ``mode`` says; by default as
        ``[operators] default_deferrable`` says.
    :param cloudstore_conn_id: the Airflow connection (templated).
    :raises ValueError: if ``deferrable`` is combined with ``exponential_backoff``, ``max_wait`` or ``silent_fail``, which the
        triggerer does not know.
    """

    template_fields: Sequence[str] = ("file_id", "cloudstore_conn_id")
    operator_extra_links = (FileLink(),)
    ui_color = "#f5ecc8"
    _misnamed: ClassVar = {"conn_id": "cloudstore_conn_id", "poll_interval": "poke_interval"}
    _wait: FileWait | None = None
    _hook: CloudStoreHook | None = None
    """That of all polls of a try: it reads the connection once, and again when the token is refused."""

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        deferrable: bool = DEFERRABLE,
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        for name in ("poke_interval", "timeout"):
            if name in kwargs:
                validate_positive(name, kwargs[name])
        validate_flags(deferrable=deferrable)
        if deferrable and (given := [name for name in _ONLY_ON_WORKER if kwargs.get(name)]):
            raise ValueError(
                f"A deferrable FileAvailableSensor polls every poke_interval and does not know {', '.join(given)}. "
                "Set deferrable=False, or leave that out"
            )
        super().__init__(**kwargs)
        self.file_id: Any = file_id
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> str:
        """Wait, and return the file's id; Airflow handles ``mode`` and the like."""
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        context = context_or_empty(context)
        if not context.get("ti"):  # of a unit test: nothing can reschedule it
            self.mode = "poke"
        self._wait = self._begin_wait()
        with self._open_hook() as self._hook:
            try:
                super().execute(context)
            except CloudStoreError as error:  # of which Airflow skips only after permanent ones
                if self.soft_fail:
                    raise AirflowSkipException(str(error)) from None
                raise
            except AirflowSensorTimeout:  # it names neither the file nor the service's response
                raise self._wait.timed_out() from None
            return self._wait.file_id

    def poke(self, context: Context) -> bool:
        """Poll once. A deferrable sensor polls for a few seconds, then defers."""
        from airflow_provider_cloudstore.exceptions import CloudStoreError

        wait, hook = self._wait or self._begin_wait(), self._hook or self._open_hook()
        if self.deferrable:
            wait_for(self, hook, wait, deferrable=True)
        elif datetime.now(UTC) < wait.not_before:
            return False
        elif isinstance(found := hook.poll_file(wait.file_id), CloudStoreError):
            wait.next_pause_or_raise(found, datetime.now(UTC), self.log.info)  # or raise; the pause itself is Airflow's
            return False
        self._announce(context, wait.file_id, hook)
        return True

    def execute_complete(self, context: Context, event: Mapping[str, Any], file_id: str | None = None) -> str:
        """Resume after a deferred wait for a file, whatever its id's template renders to by now; ``dag.test`` forgets the id."""
        from airflow_provider_cloudstore.protocol.guards import validate_text

        validate_event(event)
        file_id = file_id or validate_text(self.file_id, "file_id")
        self._announce(context, file_id, self._open_hook())
        return file_id

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; ``soft_fail`` and ``never_fail`` skip after any error, as on a worker, whatever Airflow's version does."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSkipException:
            raise
        except Exception as error:
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from None
            raise

    def _begin_wait(self) -> FileWait:
        from airflow_provider_cloudstore.protocol.waiting import FileWait

        remembered = self.deferrable or not self.reschedule  # in mode="reschedule", each poll runs in a process of its own
        return FileWait(self.file_id, self.poke_interval, self.timeout, datetime.now(UTC), remembered)

    def _announce(self, context: Context, file_id: str, hook: CloudStoreHook) -> None:
        self.log.info("File '%s' is available", file_id)
        push_file_page(self, context_or_empty(context), file_id, hook)
