"""What type checkers are told of every operator of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator


class TypedOperator(BaseOperator):
    """An operator whose output checkers take for any type: at run time it is the value, whatever Airflow annotates."""

    if TYPE_CHECKING:

        @property
        def output(self) -> Any:
            """What downstream tasks get."""
