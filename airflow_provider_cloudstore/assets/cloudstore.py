"""Files as assets (datasets in Airflow 2): their URIs, and the file id in an asset event.

Airflow calls the first three functions, which ``provider_info`` declares for the scheme ``cloudstore``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from airflow.providers.common.compat.sdk import Asset, Context

from airflow_provider_cloudstore.compat import is_asset, triggering_events

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

EXTRA_FILE_ID = "file_id"
"""The key in an asset event's extra."""


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Normalize a ``cloudstore`` URI, and drop anything that could grant access.

    In a task, the URI of a path, ``cloudstore://CONNECTION@/FILE_ID``, is that of its file: Airflow's paths report what they read
    to a lineage backend. Without the connection, which Airflow before 3.1 removes, it has no host.

    :param uri: its parts.
    :raises ValueError: if it has no host, or its connection cannot be read: the one error that Airflow expects of a handler.
    """
    from airflow_provider_cloudstore.exceptions import CloudStoreError

    try:
        return _sanitized(uri)
    except CloudStoreError as error:
        problem = str(error)
    raise ValueError(problem)


def _sanitized(uri: SplitResult) -> SplitResult:
    from airflow_provider_cloudstore.protocol.file_uris import SCHEME, connection_of, file_uri, normalize, path_of

    conn_id = connection_of(uri)
    if conn_id is None or not _in_task():
        return normalize(uri)
    path = path_of(f"{uri.netloc.rpartition('@')[2]}{uri.path}")
    return urlsplit(file_uri(_base_url(conn_id), unquote(path))) if conn_id else SplitResult(SCHEME, "", f"/{path}", "", "")


def _in_task() -> bool:
    from airflow.providers.common.compat.sdk import AirflowException, get_current_context

    try:
        return bool(get_current_context())
    except (AirflowException, RuntimeError):  # Airflow 2, Airflow 3
        return False


@lru_cache
def _base_url(conn_id: str) -> str:
    """A connection's base URL, read once: a lineage backend is told of every single read."""
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

    return CloudStoreHook(conn_id).settings.base_url


def create_asset(*, base_url: str, file_id: str | int, extra: dict[str, Any] | None = None) -> Asset:
    """The asset of one file.

    :param base_url: the service's base URL, such as ``https://files.example.com``, without credentials.
    :param file_id: the file.
    :param extra: what Airflow stores with the asset.
    :raises InvalidInputError: if the base URL has no host, or the file id is none.
    """
    from airflow_provider_cloudstore.protocol.file_uris import file_uri

    return Asset(uri=file_uri(base_url, file_id), extra=extra)


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """The OpenLineage dataset of a ``cloudstore`` asset."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    from airflow_provider_cloudstore.protocol.file_uris import dataset_of_url

    return Dataset(*dataset_of_url(asset.uri))


def attach_file_id(task: Any, context: Context, file_id: str) -> None:
    """Add the id of an available file to the asset events of the task's outlets."""
    events: Any = context.get("outlet_events")
    for outlet in task.outlets if events is not None else ():
        if is_asset(outlet):
            events[outlet].extra[EXTRA_FILE_ID] = str(file_id).strip()


def triggering_file_ids(context: Context) -> list[str]:
    """The ids of the files whose asset events triggered this run, without duplicates, in the order of the events.

    :param context: the context of a task, in a DAG that is scheduled on assets; ``get_current_context()`` returns it.
    """
    events = [event for of_asset in triggering_events(context).values() for event in of_asset]
    ids = [(event.extra or {}).get(EXTRA_FILE_ID) for event in sorted(events, key=lambda event: event.timestamp)]
    return list(dict.fromkeys(filter(None, ids)))
