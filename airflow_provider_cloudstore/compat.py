"""Where the Airflow versions differ and ``common.compat`` does not say so already: everybody else asks here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from airflow.providers.common.compat.sdk import Asset, BaseOperator, Context

try:
    from airflow.sdk.definitions.asset import AssetRef
except ImportError:  # Airflow 2
    _ASSETS: tuple[type, ...] = (Asset,)
else:
    _ASSETS = (Asset, AssetRef)

HAS_RETRY_POLICIES = hasattr(BaseOperator, "has_retry_policy")
"""Airflow 3.3 and later."""


def is_asset(outlet: Any) -> bool:
    """Whether an outlet has events of its own: an asset, a dataset in Airflow 2, and no alias.

    :param outlet: one of a task's ``outlets``.
    """
    return isinstance(outlet, _ASSETS)


def triggering_events(context: Context) -> Mapping[Any, Any]:
    """The asset events that started a run, by asset; dataset events in Airflow 2.

    :param context: a task's context.
    """
    events: Any = context.get("triggering_asset_events") or context.get("triggering_dataset_events")
    return events or {}


def asset_stores(trigger: Any) -> list[Any]:
    """The state stores of the assets that a trigger watches (Airflow 3.3 and later), each with ``aget`` and ``aset``.

    :param trigger: an event trigger that the triggerer runs.
    """
    stores = getattr(trigger, "asset_state_store", None)
    # Airflow's own short cut refuses a trigger that several assets watch with the same arguments.
    return [store for name in ("_by_name", "_by_uri") for store in getattr(stores, name, {}).values()]


def has_filesystem(scheme: str) -> bool:
    """Whether ``ObjectStoragePath`` has a filesystem for a scheme.

    :param scheme: such as ``s3``.
    """
    try:
        io = import_module("airflow.sdk.io.fs")
    except ImportError:  # before Airflow 3.1
        io = import_module("airflow.io")
    return bool(io.has_fs(scheme))


def is_superseded(error: Exception) -> bool:
    """Whether the task state store (Airflow 3.3 and later) refused a write because a newer try runs.

    The store belongs to the running try: Airflow's own API answers an older one with 404.

    :param error: what the store raised.
    """
    detail = getattr(getattr(error, "error", None), "detail", None)
    return isinstance(detail, dict) and detail.get("status_code") == 404
