"""Maps the protocol's errors to Airflow's: a permanent one is also an ``AirflowFailException``, which skips Airflow's retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_cloudstore.protocol.errors import CloudStoreError, restore


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Make a permanent error also an ``AirflowFailException``, for operators and TaskFlow code alike."""
    try:
        yield
    except CloudStoreError as error:
        if error.permanent and not isinstance(error, AirflowFailException):
            error.__class__ = _failing(type(error))
        raise


def _reduce_failing(error: CloudStoreError) -> tuple[Any, ...]:
    # No module has the type as an attribute, so pickle cannot look it up: the other process creates its own.
    return restore_failing, (type(error).__bases__[0], error.args, vars(error))


def restore_failing(kind: type[CloudStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> CloudStoreError:
    """Restore a pickled or copied permanent error that is also an ``AirflowFailException``."""
    return restore(_failing(kind), args, fields)


_failing_types: dict[type[CloudStoreError], type[CloudStoreError]] = {}


def _failing(kind: type[CloudStoreError]) -> type[CloudStoreError]:
    """The type of a permanent error that is also an ``AirflowFailException``; created on first use."""
    if kind not in _failing_types:
        # With this __module__ a traceback shows the path to import the error from.
        own = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": _reduce_failing}
        _failing_types[kind] = type(kind.__name__, (kind, AirflowFailException), own)
    return _failing_types[kind]
