from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.lineage import hook as compat
from airflow.providers.common.compat.sdk import ObjectStoragePath
from airflow.utils.state import TaskInstanceState

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.lineage import Lineage, collect, of_batch, of_download, of_upload
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.real_airflow import AIRFLOW_2

OWN_ENVIRONMENT = "the OpenLineage provider is in the environments of its own"
SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Airflow's own collector, as it is where somebody reads it."""
    try:
        module = import_module("airflow.sdk.lineage")
    except ImportError:  # Airflow before 3.2
        module = import_module("airflow.lineage.hook")
    collector = module.HookLineageCollector()
    if AIRFLOW_2:
        collector = compat._add_asset_naming_compatibility_layer(collector)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(compat, "get_hook_lineage_collector", lambda: collector)
    for reporter in (module, import_module(ObjectStoragePath.__module__)):
        monkeypatch.setattr(reporter, "get_hook_lineage_collector", lambda: collector, raising=False)
    return collector


def collected(collector: Any) -> tuple[list[Any], list[Any]]:
    lineage = collector.collected_datasets if AIRFLOW_2 else collector.collected_assets
    assets = [[one.dataset if AIRFLOW_2 else one.asset for one in side] for side in (lineage.inputs, lineage.outputs)]
    return assets[0], assets[1]


def test_a_hooks_upload_is_collected_without_credentials(emulator: Emulator, collector: Any) -> None:
    with CloudStoreHook() as hook:
        upload = hook.upload_from_url(SOURCE)
    inputs, outputs = collected(collector)
    assert [asset.uri for asset in inputs] == ["ftp://127.0.0.1:9/file"]
    assert [asset.uri for asset in outputs] == [f"cloudstore://{emulator.url.removeprefix('http://')}/{upload.file_id}"]
    assert "hunter" not in f"{inputs} {outputs}"


def test_what_no_asset_can_be_made_of_fails_no_task(collector: Any) -> None:
    collect(CloudStoreHook(), Lineage((f"https://h/{'x' * 2000}", "airflow://reserved/x"), ("file:///tmp/x",)))
    assert [asset.uri for asset in collected(collector)[1]] == ["file:///tmp/x"]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (DownloadFileOperator, {"file_id": "missing", "target": "/tmp/f"}),
        (DownloadFileOperator, {"file_id": "missing", "target": "s3://[b/f"}),
        (RemoteUrlUploadOperator, {"url": "no URL"}),
        (RemoteUrlBatchUploadOperator, {"urls": [SOURCE], "receipts": "nosuch://x/y"}),
        (RemoteUrlBatchUploadOperator, {"urls": "/no/such/file.csv", "receipts": None}),
        (RemoteUrlBatchUploadOperator, {"urls": "s3://[b/urls.csv", "receipts": None}),
        (RemoteUrlBatchUploadOperator, {"urls": "ftp://h/no-manifest?sig=hunter2", "receipts": None}),
        (RemoteUrlBatchUploadOperator, {"urls": "{{ None }}", "receipts": None}),
        (DeleteFolderOperator, {"folder_id": "missing"}),
        (DownloadLinkOperator, {"file_id": "missing"}),
        (FileAvailableSensor, {"file_id": ""}),
    ],
)
def test_openlineage_has_nothing_to_warn_of_when_a_task_fails(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: dict[str, Any]
) -> None:
    manager = pytest.importorskip("airflow.providers.openlineage.extractors.manager", reason=OWN_ENVIRONMENT)
    operator = kind(task_id="t", **arguments)
    operator.render_template_fields({})
    run = SimpleNamespace(run_id="r")
    ti: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1, max_tries=0)
    with pytest.raises((CloudStoreError, OSError)):
        operator.execute({"ti": ti})
    log = Mock()
    for logger in (manager.ExtractorManager, manager.DefaultExtractor):
        monkeypatch.setattr(logger, "log", log)
    found = manager.ExtractorManager().extract_metadata(run, operator, TaskInstanceState.FAILED, ti)
    assert "hunter2" not in str(found)
    assert [*log.warning.mock_calls, *log.exception.mock_calls] == []
    assert log.debug.called


def test_openlineage_is_told_of_manifest_and_receipts_as_rendered(emulator: Emulator, tmp_path: Path) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason=OWN_ENVIRONMENT)
    (tmp_path / "urls.csv").write_text(f"url\n{SOURCE}\n")
    operator = RemoteUrlBatchUploadOperator(task_id="b", urls=f"{tmp_path}/{{{{ 'urls' }}}}.csv", receipts=f"{tmp_path}/r")
    operator.render_template_fields({})
    operator.execute({})
    found: Any = operator.get_openlineage_facets_on_complete(None)
    assert [(one.namespace, one.name) for one in found.inputs] == [("file", f"{tmp_path}/urls.csv")]
    assert [(one.namespace, one.name) for one in found.outputs] == [("file", f"{tmp_path}/r")]
    many = RemoteUrlBatchUploadOperator(task_id="m", urls=[SOURCE], receipts=None)
    many.render_template_fields({})
    many.execute({})
    found = many.get_openlineage_facets_on_complete(None)
    assert not found.inputs
    assert not found.outputs


BASE = "https://files.example.com/eu"


def test_an_upload_leads_from_its_source_to_its_file_and_names_no_credential() -> None:
    found = of_upload("ftp://user:hunter2@h/f?sig=hunter2", BASE, "a/b")
    assert found == Lineage(("ftp://h/f",), ("cloudstore://files.example.com/eu/a%2Fb",))
    assert of_upload("ftp://h/f", BASE, "no\u200fone") == Lineage(("ftp://h/f",), ())  # an id that no operation accepts
    assert of_upload("ftp://***@h/f?***", BASE, "") == Lineage(("ftp://h/f",), ())


def test_a_batch_leads_from_its_manifest_to_its_receipts() -> None:
    assert of_batch("s3://my_conn@bucket/urls.csv", "/data/receipts") == Lineage(("s3://bucket/urls.csv",), ("/data/receipts",))
    assert of_batch(None, None) == Lineage()


def test_a_download_leads_from_its_file_to_its_target() -> None:
    assert of_download(BASE, "f1", "s3://my_conn@bucket/f") == Lineage(
        ("cloudstore://files.example.com/eu/f1",), ("s3://bucket/f",)
    )
