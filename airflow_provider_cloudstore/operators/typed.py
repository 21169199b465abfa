"""The base classes of the operators, and the validation of their arguments when Airflow parses a DAG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES


def validate_flags(**flags: object) -> None:
    """Reject strings as flags: ``"no"`` and ``"false"`` would be true.

    :param flags: the arguments, by name.
    :raises ValueError: if one is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


def validate_durations(**seconds: object) -> None:
    """Reject durations that no wait can take.

    :param seconds: the arguments, by name.
    :raises ValueError: if one is not a number of seconds above 0.
    """
    from airflow_provider_cloudstore.protocol.waiting import is_duration

    for name, value in seconds.items():
        if not is_duration(value):
            example = 60 if name == "poll_interval" else 3600
            raise ValueError(f"{name} must be a number of seconds above 0, such as {example}, not {value!r}")


class TypedOperator(BaseOperator):
    """Base of all operators. Type checkers see ``output`` as ``Any``: at run time it is the task's return value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if HAS_RETRY_POLICIES and self.retry_policy is None:
            from airflow_provider_cloudstore.operators.retry_times import RetryAfterPolicy

            self.retry_policy = RetryAfterPolicy()

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """The task's return value, for downstream tasks."""


class WaitingOperator(TypedOperator):
    """Base of the operators that can wait for a file."""

    file_id: Any
    poll_interval: float
    timeout: float
    deferrable: bool
    cloudstore_conn_id: str
