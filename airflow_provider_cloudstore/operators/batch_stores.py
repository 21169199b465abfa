"""Where a batch's manifest, receipts and state are in Airflow: object storage paths and the task's state store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_cloudstore.batch.manifest import Entry, entries_of_file
from airflow_provider_cloudstore.batch.receipts import PathFolder, Receipts, Try
from airflow_provider_cloudstore.compat import is_superseded, task_state_store
from airflow_provider_cloudstore.hooks.targets import object_path
from airflow_provider_cloudstore.protocol.errors import BatchStoreError, BatchSupersededError, InvalidInputError
from airflow_provider_cloudstore.protocol.operations import validate_present

log = logging.getLogger(__name__)

STATE_KEY = "cloudstore_batch"


@contextmanager
def open_manifest(text: str, url_column: str, key_column: str | None) -> Iterator[Iterator[Entry]]:
    """The entries of a manifest, read as a stream.

    :raises InvalidInputError: if it is not a file, or cannot be read to its end.
    :raises BatchStoreError: if it cannot be opened for another reason, which may pass.
    """
    path, problem, reason = object_path(text, "urls"), "", ""
    try:
        if path.protocol in ("", "file", "local") and not Path(path.path).is_file():
            path.stat()  # what does not exist is named below
            raise IsADirectoryError
        stream: Any = path.open("rb")
    except FileNotFoundError:
        problem = "does not exist"
    except (IsADirectoryError, NotADirectoryError):
        problem = "is a folder or a device, or is in a file"
    except Exception as error:  # noqa: BLE001  (of any store; the task ends below)
        reason = type(error).__name__
    if reason:
        raise BatchStoreError(f"the manifest {text} cannot be opened ({reason})", operation="batch upload")
    if not problem and text.endswith("/"):
        problem = "is a folder"
    if problem:
        raise InvalidInputError(f"the manifest {text} {problem}: urls is a list, or the path of one file; nothing was sent")
    with stream:
        yield entries_of_file(stream, text, url_column, key_column)


def open_receipts(text: str | None, writer: Try) -> Receipts | None:
    """The receipts in a folder, which need not exist; None if the task has no ``receipts``.

    :raises InvalidInputError: if no filesystem opens it, or another worker would not find it.
    """
    if text is None:
        return None
    place = validate_present(text, "receipts")
    path = object_path(place, "receipts")
    if not path.protocol and not place.startswith("/"):
        raise InvalidInputError(
            "receipts is a relative path, which another worker would not find: make it absolute; nothing was sent"
        )
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
        else:
            return
        raise BatchSupersededError("Airflow refused the state of this try: a newer one has taken over", operation="batch upload")

    def delete(self) -> None:
        try:
            self._store.delete(STATE_KEY)
        except Exception as error:  # noqa: BLE001  (of any store; the batch has succeeded, and must not fail for it)
            log.warning("Could not delete the batch's state (%s): a cleared task resumes from it", type(error).__name__)


def state_of(context: Context) -> _TaskState | None:
    """The task's state store, or None before Airflow 3.3."""
    store = task_state_store(context)
    return _TaskState(store) if store is not None else None


def try_of(context: Context, retries: int | None) -> tuple[Try, int]:
    """The running try, and the number of the first one since the task was last cleared."""
    ti = context["ti"]
    scope = tuple(str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index"))
    number = int(getattr(ti, "try_number", 1) or 1)
    # Clearing a task raises max_tries to the tries so far plus its retries.
    max_tries = int(getattr(ti, "max_tries", None) or retries or 0)
    return Try(scope, number), min(number, max_tries - (retries or 0) + 1)
