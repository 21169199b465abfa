"""Where a batch's manifest, receipts and state are in Airflow: object storage paths and the task's state store."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.batch.manifest import Manifest, spooled_manifest
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.state import PLACE, State
from airflow_provider_cloudstore.batch.tries import STATE_KEY, Try
from airflow_provider_cloudstore.compat import is_superseded, task_state_store
from airflow_provider_cloudstore.hooks.folders import PathFolder
from airflow_provider_cloudstore.hooks.targets import object_path
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, CloudStoreError, InvalidInputError
from airflow_provider_cloudstore.protocol.operations import validate_present


def read_manifest(text: str, url_column: str, key_column: str | None) -> Manifest:
    """The manifest at a path, copied to this machine.

    :raises InvalidInputError: if it is not a file.
    :raises BatchInterruptedError: if it cannot be opened for another reason, which may pass, or be copied.
    """
    path = object_path(text, "urls")
    error: CloudStoreError | None = None
    try:
        stream: Any = path.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        what = f"the manifest {text} does not exist, or is a folder: urls is a list, or the path of one file; nothing was sent"
        error = InvalidInputError(what)
    except Exception as failed:  # noqa: BLE001  (of any store; it must not become the context of ours, which is raised below)
        what = f"the manifest {text} cannot be opened ({type(failed).__name__})"
        error = BatchInterruptedError(what, operation="batch upload", cause="store")
    if error:
        raise error
    with stream:
        return spooled_manifest(stream, text, url_column, key_column)


def open_receipts(text: str | None, writer: Try) -> Receipts | None:
    """The receipts in a folder, which need not exist; None if the task has no ``receipts``.

    :raises InvalidInputError: if no filesystem opens it, or another worker would not find it.
    """
    if text is None:
        return None
    place = validate_present(text, "receipts")
    path = object_path(place, "receipts")
    if not path.protocol and not place.startswith("/"):
        raise InvalidInputError("receipts is a relative path: make it absolute, so that every worker finds it; nothing was sent")
    return Receipts(PathFolder(path), writer, place)


class _TaskState:
    """The task's state store (Airflow 3.3 and later)."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def load(self) -> Any:
        return self._store.get(STATE_KEY)

    def save(self, state: dict[str, Any]) -> None:
        try:
            self._store.set(STATE_KEY, state)
        except Exception as error:
            if not is_superseded(error):
                raise
            reason = f"{PLACE} refused this try: a newer one has taken over"
            raise BatchInterruptedError(reason, operation="batch upload", cause="superseded") from None


def state_of(context: Context, writer: Try) -> State | None:
    """The task's state store, or None before Airflow 3.3."""
    store = task_state_store(context)
    return State(_TaskState(store), writer) if store is not None else None


def try_of(context: Context) -> Try:
    """The running try."""
    ti = context["ti"]
    scope = tuple(str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index"))
    return Try(scope, int(getattr(ti, "try_number", 1) or 1))
