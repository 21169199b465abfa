from __future__ import annotations

import importlib
import json
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from airflow_provider_cloudstore import __version__
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.provider_info import get_provider_info

PACKAGE = Path(__file__).resolve().parent.parent.parent / "airflow_provider_cloudstore"


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    found = [point for point in entry_points(group="apache_airflow_provider") if point.name == "provider_info"]
    own = [point for point in found if point.module.startswith("airflow_provider_cloudstore")]
    assert [point.load() for point in own] == [get_provider_info]


@pytest.mark.parametrize("schema", ["provider_info.schema.json"])
def test_the_provider_info_is_what_this_airflow_asks_for(schema: str) -> None:
    jsonschema.validate(get_provider_info(), json.loads(files("airflow").joinpath(schema).read_text()))


def test_every_module_of_glue_is_listed_and_every_listed_one_is_there() -> None:
    info = get_provider_info()
    kinds = {"operators": BaseOperator, "sensors": BaseSensorOperator, "hooks": BaseHook, "triggers": BaseTrigger}
    for kind, base in kinds.items():
        listed = {module for entry in info[kind] for module in entry["python-modules"]}
        modules = [importlib.import_module(f"{PACKAGE.name}.{kind}.{file.stem}") for file in (PACKAGE / kind).glob("[a-z]*.py")]
        there = {module.__name__ for module in modules if defines(module, base)}
        assert listed == there


def defines(module: ModuleType, base: type) -> bool:
    """Whether a module has a class that users choose, and not only a base of such classes."""
    own = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    return any(issubclass(kind, base) and not _is_a_base_of_ours(kind) for kind in own)


def _is_a_base_of_ours(kind: type) -> bool:
    children: list[type] = kind.__subclasses__()
    return any(child.__module__.startswith(PACKAGE.name) for child in children)


def test_the_connection_type_is_the_hooks() -> None:
    info: dict[str, Any] = get_provider_info()
    (connection,) = info["connection-types"]
    module, _, name = connection["hook-class-name"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is CloudStoreHook
    assert connection["connection-type"] == CloudStoreHook.conn_type == "cloudstore"
    assert connection["hook-name"] == CloudStoreHook.hook_name
    assert CloudStoreHook.default_conn_name == "cloudstore_default"
    assert info["versions"] == [__version__]
