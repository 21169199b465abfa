"""What every operator of this package has: a retry policy, and an output that type checkers take for any type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_cloudstore.compat import HAS_RETRY_POLICIES


def validate_flags(**flags: object) -> None:
    """Refuse a text for a flag, where the DAG is read: ``"no"`` and ``"false"`` would be true.

    :param flags: the arguments, by their names.
    :raises ValueError: if one is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


class TypedOperator(BaseOperator):
    """Base of all operators. Type checkers see ``output`` as ``Any``, because at run time it is the task's value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if HAS_RETRY_POLICIES and self.retry_policy is None:
            from airflow_provider_cloudstore.operators.retry_times import RetryAfterPolicy

            self.retry_policy = RetryAfterPolicy()

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """What downstream tasks get."""
