"""Where a batch's manifest, receipts and state are in Airflow: object storage paths and the task's state store."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.batch.manifest import SpooledManifest, spooled_manifest
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.state import State
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.compat import task_state_store
from airflow_provider_cloudstore.hooks.folders import PathFolder
from airflow_provider_cloudstore.hooks.targets import object_path
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, CloudStoreError, InvalidInputError
from airflow_provider_cloudstore.protocol.operations import validate_present


def read_manifest(text: str, url_column: str, key_column: str | None = None) -> SpooledManifest:
    """The manifest at a path, copied to this machine.

    :raises InvalidInputError: if it is not a file.
    :raises BatchInterruptedError: if it cannot be opened for another reason, which may pass, or be copied.
    """
    path = object_path(text, "urls")
    error: CloudStoreError  # raised below, so that a store's own error does not become its context
    try:
        stream: Any = path.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        what = f"the manifest {text} does not exist, or is a folder: urls is a list, or the path of one file; nothing was sent"
        error = InvalidInputError(what)
    except Exception as failed:  # noqa: BLE001  (of any store)
        what = f"the manifest {text} cannot be opened ({type(failed).__name__})"
        error = BatchInterruptedError(what, operation="batch upload", cause="store")
    else:
        with stream:
            return spooled_manifest(stream, text, url_column, key_column)
    raise error


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


def state_of(context: Context, writer: Try) -> State | None:
    """The task's state store, or None before Airflow 3.3."""
    store = task_state_store(context)
    return State(store, writer) if store is not None else None


def try_of(context: Context) -> Try:
    """The running try."""
    ti = context.get("ti")
    scope = tuple(str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index"))
    return Try(scope, int(getattr(ti, "try_number", 1) or 1))
