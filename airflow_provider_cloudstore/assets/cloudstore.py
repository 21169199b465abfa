"""Files as assets (datasets in Airflow 2): their URIs, and the file id in an asset event.

Airflow calls the first three functions, which ``provider_info`` declares for the scheme ``cloudstore``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from airflow_provider_cloudstore.compat import Asset, AssetAlias, AssetRef, Context

if TYPE_CHECKING:
    from airflow_provider_cloudstore.compat import Dataset
    from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

EXTRA_FILE_ID = "file_id"
"""The key in an asset event's extra."""


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Normalize a ``cloudstore`` URI, and drop anything that could grant access.

    :param uri: its parts.
    :raises ValueError: if it is no unambiguous URL: the one error that Airflow expects of a handler.
    """
    from airflow_provider_cloudstore.exceptions import InvalidInputError
    from airflow_provider_cloudstore.protocol.file_uris import normalize

    try:
        return normalize(uri)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None


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
    from airflow_provider_cloudstore.compat import Dataset
    from airflow_provider_cloudstore.protocol.file_uris import dataset_of_url

    return Dataset(*dataset_of_url(asset.uri))


def attach_file_id(task: Any, context: Context, file_id: str, hook: CloudStoreHook) -> None:
    """Add the id of an available file to the asset events of the task's outlets; an alias gets the file's own asset.

    :param file_id: the file, which a guard has passed.
    :param hook: knows the service.
    """
    events: Any = context.get("outlet_events")
    for outlet in task.outlets if events is not None else ():
        if isinstance(outlet, AssetAlias):
            own = create_asset(base_url=hook.settings.base_url, file_id=file_id)
            events[outlet].add(own, extra={EXTRA_FILE_ID: file_id})
        elif isinstance(outlet, (Asset, AssetRef)):
            events[outlet].extra[EXTRA_FILE_ID] = file_id


def triggering_file_ids(context: Context) -> list[str]:
    """The ids of the files whose asset events triggered this run, without duplicates, in the order of the events.

    :param context: the context of a task, in a DAG that is scheduled on assets; ``get_current_context()`` returns it.
    """
    by_asset: Any = context.get("triggering_asset_events") or context.get("triggering_dataset_events") or {}  # Airflow 2
    events = sorted((event for of_asset in by_asset.values() for event in of_asset), key=lambda event: event.timestamp)
    ids = [(event.extra or {}).get(EXTRA_FILE_ID) for event in events]
    return list(dict.fromkeys(filter(None, ids)))
