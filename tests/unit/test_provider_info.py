from __future__ import annotations

import importlib
import json
from importlib.metadata import entry_points
from importlib.resources import files

import jsonschema

from airflow_provider_cloudstore import __version__
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.protocol.settings import EXTRAS
from airflow_provider_cloudstore.provider_info import connection_form, get_provider_info
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger


def test_airflow_finds_the_provider_by_its_entry_point_and_understands_what_it_says() -> None:
    found = [point for point in entry_points(group="apache_airflow_provider") if point.name == "provider_info"]
    (own,) = [point.load() for point in found if point.module.startswith("airflow_provider_cloudstore")]
    assert own()["versions"] == [__version__]
    jsonschema.validate(own(), json.loads(files("airflow").joinpath("provider_info.schema.json").read_text()))


def test_the_modules_of_what_users_choose_are_listed() -> None:
    chosen = {
        "operators": [getattr(operators, name) for name in operators.__all__],
        "sensors": [FileAvailableSensor],
        "hooks": [CloudStoreHook, CloudStoreAsyncHook],
        "triggers": [FileAvailableTrigger],
    }
    for key, kinds in chosen.items():
        listed = {module for entry in get_provider_info()[key] for module in entry["python-modules"]}
        assert listed == {kind.__module__ for kind in kinds}


def test_the_connection_type_is_the_hooks() -> None:
    (connection,) = get_provider_info()["connection-types"]
    module, _, name = connection["hook-class-name"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is CloudStoreHook
    assert connection["connection-type"] == CloudStoreHook.conn_type == "cloudstore"
    assert connection["hook-name"] == CloudStoreHook.hook_name
    assert CloudStoreHook.default_conn_name == "cloudstore_default"


def test_the_connection_form_has_the_names_and_defaults_of_the_extras_and_hides_what_may_hold_a_credential() -> None:
    form = connection_form()
    assert form.keys() == EXTRAS.keys()
    assert form["timeout"] == {
        "label": "timeout",
        "description": "Seconds to connect, and to receive the response. Default 30.",
        "schema": {"type": ["number", "null"]},
    }
    assert [form[name]["schema"]["type"][0] for name in ("max_attempts", "allow_http", "verify")] == [
        "integer",
        "boolean",
        "string",
    ]
    assert [name for name, shown in form.items() if shown["schema"].get("format") == "password"] == ["parameters", "proxy"]
