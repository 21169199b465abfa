from __future__ import annotations

import warnings
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.assets.cloudstore import attach_file_id, create_asset, triggering_file_ids
from airflow_provider_cloudstore.compat import Asset
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator
from tests.dag_runs import run_dag
from tests.dags import asset_dags
from tests.support import activate, asset_events, store_file

ASSET = "cloudstore://files.example.com/daily-report"


def asset(uri: str) -> Any:
    return Asset(uri=uri)


def test_airflow_normalizes_a_uri_by_the_handler() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's own, of the password
        written = asset("CloudStore://user:hunter2@Files.Example.com:443/eu/%64aily/?access_token=hunter2#hunter2")
    assert written.uri == "cloudstore://files.example.com/eu/daily"


def test_a_uri_that_is_none_is_a_value_error_which_airflow_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__STRICT_DATASET_URI_VALIDATION", "True")  # without it, Airflow 2 only warns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="cloudstore asset URI") as refused:
            asset("cloudstore://files.example.com:port/f1?access_token=hunter2")
    assert "hunter2" not in str(refused.value)


def test_airflow_finds_the_factory_of_a_files_asset() -> None:
    from airflow_provider_cloudstore.compat import get_hook_lineage_collector

    collector: Any = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
    kwargs = {"base_url": "https://h/eu", "file_id": "a/b"}
    made = collector.create_asset(scheme="cloudstore", uri=None, asset_kwargs=kwargs, asset_extra=None)
    assert made.uri == create_asset(base_url="https://h/eu", file_id="a/b").uri == "cloudstore://h/eu/a%2Fb"


def test_the_id_goes_to_assets_only_and_leaves_the_users_own_extra_alone() -> None:
    class Events(dict[str, Any]):
        def __getitem__(self, key: Any) -> Any:  # Airflow's own takes assets, which not every version can hash
            return self.setdefault(key.uri, SimpleNamespace(extra={"of": "the user"}))

    events, outlet = Events(), asset(ASSET)
    task = DownloadLinkOperator(task_id="link", file_id="f1", outlets=[outlet, "no asset"])
    context: Any = {"outlet_events": events}
    attach_file_id(task, context, task.file_id, CloudStoreHook())
    assert {key: event.extra for key, event in events.items()} == {ASSET: {"of": "the user", "file_id": "f1"}}
    attach_file_id(task, {}, "f1", CloudStoreHook())  # no Airflow around it


def test_the_consumer_finds_each_file_once_in_the_order_of_the_events() -> None:
    def event(second: int, extra: Any) -> Any:
        return SimpleNamespace(timestamp=datetime(2026, 1, 1, second=second), extra=extra)

    events = {
        "a": [event(3, {"file_id": "f3"}), event(1, {"file_id": "f1"})],
        "b": [event(2, {"file_id": "f2"}), event(4, {"file_id": "f1"}), event(5, {}), event(6, None)],
    }
    for name in ("triggering_asset_events", "triggering_dataset_events"):
        context: Any = {name: events}
        assert triggering_file_ids(context) == ["f1", "f2", "f3"]
    nothing: Any = {}
    assert triggering_file_ids(nothing) == []


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("dag", [asset_dags.deferred_sensor, asset_dags.mapped_links, asset_dags.download, asset_dags.reference])
def test_the_event_of_a_file_holds_its_id_and_no_token(emulator: Emulator, tmp_path: Path, dag: Any) -> None:
    store_file(emulator)
    activate(dag, asset_dags.REPORT)
    run = run_dag(dag, {"target": str(tmp_path / "target")} if dag is asset_dags.download else {})
    assert run.state == "success", run
    assert asset_events(asset_dags.REPORT.uri) == [{"file_id": "f1"}]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize("dag", [asset_dags.alias, asset_dags.alias_deferred_sensor])
def test_an_alias_gets_the_files_own_asset(emulator: Emulator, dag: Any) -> None:
    store_file(emulator)
    own = create_asset(base_url=CloudStoreHook().settings.base_url, file_id="f1")
    activate(dag, own)
    run = run_dag(dag)
    assert run.state == "success", run
    assert asset_events(own.uri) == [{"file_id": "f1"}]
