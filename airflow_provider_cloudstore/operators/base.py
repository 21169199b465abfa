"""The base classes of the operators, and the validation of their arguments when Airflow parses a DAG file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator, conf

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES
from airflow_provider_cloudstore.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
    from airflow_provider_cloudstore.protocol.results import DownloadLink


def validate_flags(**flags: object) -> None:
    """Reject strings as flags: ``"no"`` and ``"false"`` would be true.

    :raises ValueError: if one is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


def validate_durations(**seconds: object) -> None:
    """Reject durations that no wait can take.

    :raises ValueError: if one is not a number of seconds above 0.
    """
    from airflow_provider_cloudstore.protocol.waiting import is_duration

    for name, value in seconds.items():
        if not is_duration(value):
            example = 60 if name == "poll_interval" else 3600
            raise ValueError(f"{name} must be a number of seconds above 0, such as {example}, not {value!r}")


def validate_whole_number(name: str, value: object, least: int, most: int | None = None) -> None:
    """Reject what is no whole number in a range.

    :raises ValueError: if it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {limits}, not {value!r}")


def validate_limits(
    max_concurrency: object, requests_per_second: object, max_consecutive_failures: object, allowed_failures: object
) -> None:
    """Reject limits that are no numbers in their range; the rate and the number of consecutive failures may be None.

    :raises ValueError: if one is invalid.
    """
    validate_whole_number("max_concurrency", max_concurrency, 1, 500)
    validate_whole_number("max_consecutive_failures", 1 if max_consecutive_failures is None else max_consecutive_failures, 1)
    validate_whole_number("allowed_failures", allowed_failures, 0)
    rate = requests_per_second
    if rate is not None and (not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0):
        raise ValueError(f"requests_per_second must be a number above 0 or None, not {rate!r}")


def validate_columns(*, url_column: object, key_column: object) -> None:
    """Reject column names that are empty or no strings; ``key_column`` may be None.

    :raises ValueError: if one is invalid.
    """
    for argument, name in (("url_column", url_column), ("key_column", "none" if key_column is None else key_column)):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{argument} must be the name of a column, not {name!r}")


if not hasattr(BaseOperator, "_do_render_template_fields"):
    raise ImportError(
        "This Airflow has no BaseOperator._do_render_template_fields, in which the operators redact URLs: it would store their "
        "credentials in clear text. Install an Airflow version that airflow-provider-cloudstore supports"
    )


class TypedOperator(BaseOperator):
    """Base of all operators. Type checkers see ``output`` as ``Any``: at run time it is the task's return value."""

    cloudstore_conn_id: str

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if HAS_RETRY_POLICIES and self.retry_policy is None:
            from airflow_provider_cloudstore.operators.retry_times import RetryAfterPolicy

            self.retry_policy = RetryAfterPolicy()

    def _do_render_template_fields(self, *args: Any, **kwargs: Any) -> None:
        # Airflow stores the rendered fields after this and before `execute`, for plain and for mapped tasks.
        super()._do_render_template_fields(*args, **kwargs)
        self._redact_fields()

    def _redact_fields(self) -> None:
        """Replace what must not be stored in the rendered fields."""

    def _open_hook(self) -> CloudStoreHook:
        from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

        return CloudStoreHook(self.cloudstore_conn_id)

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The task's return value, for downstream tasks."""


class WaitingOperator(TypedOperator):
    """Base of the operators that use a download link, and can wait for the file first."""

    def __init__(
        self,
        *,
        file_id: str | int | XComArg,
        wait_for_file: bool = False,
        poll_interval: float = 10.0,
        timeout: float = 3600.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        cloudstore_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        validate_durations(poll_interval=poll_interval, timeout=timeout)
        validate_flags(wait_for_file=wait_for_file, deferrable=deferrable)
        self.file_id: Any = file_id
        self.wait_for_file = wait_for_file
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.deferrable = deferrable
        self.cloudstore_conn_id = cloudstore_conn_id

    def execute(self, context: Context) -> Any:
        """Use the link, with ``wait_for_file`` once the file is available."""
        from airflow_provider_cloudstore.operators.waiting import wait_for_link

        with self._open_hook() as hook:
            return self._use_link(context, hook, wait_for_link(self, context, hook) if self.wait_for_file else None)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Resume after a deferred wait, with a fresh link so that it is valid for as long as possible."""
        from airflow_provider_cloudstore.operators.waiting import create_fresh_link, validate_event

        validate_event(self, context, event)
        with self._open_hook() as hook:
            return self._use_link(context, hook, create_fresh_link(self, hook))

    def _use_link(self, context: Context, hook: CloudStoreHook, link: DownloadLink | None) -> Any:
        raise NotImplementedError
