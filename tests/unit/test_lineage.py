from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.utils.state import TaskInstanceState

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.lineage import Lineage, collect, of_batch, of_download, of_upload
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from tests.real_airflow import AIRFLOW_2

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"
BASE = "https://files.example.com/eu"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Airflow's own collector, as it is where somebody reads it."""
    try:
        module = import_module("airflow.sdk.lineage")
    except ImportError:  # Airflow before 3.2
        module = import_module("airflow.lineage.hook")
    collector = module.HookLineageCollector()
    monkeypatch.setattr(module, "get_hook_lineage_collector", lambda: collector)
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
        (RemoteUrlUploadOperator, {"url": "no URL"}),
        (RemoteUrlBatchUploadOperator, {"urls": "ftp://h/no-manifest?sig=hunter2", "receipts": None}),
        (DeleteFolderOperator, {"folder_id": "missing"}),
    ],
)
def test_openlineage_has_nothing_to_warn_of_when_a_task_fails(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: dict[str, Any]
) -> None:
    manager = pytest.importorskip("airflow.providers.openlineage.extractors.manager", reason="make test-lineage has OpenLineage")
    operator = kind(task_id="t", **arguments)
    operator.render_template_fields({})
    ti: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1, max_tries=0)
    with pytest.raises(CloudStoreError):
        operator.execute({"ti": ti})
    log = Mock()
    for logger in (manager.ExtractorManager, manager.DefaultExtractor):
        monkeypatch.setattr(logger, "log", log)
    found = manager.ExtractorManager().extract_metadata(SimpleNamespace(run_id="r"), operator, TaskInstanceState.FAILED, ti)
    assert "hunter2" not in str(found)
    assert [*log.warning.mock_calls, *log.exception.mock_calls] == []
    assert log.debug.called


def test_an_upload_leads_from_its_source_to_its_file_and_names_no_credential() -> None:
    found = of_upload("ftp://user:hunter2@h/f?sig=hunter2", BASE, "a/b")
    assert found == Lineage(("ftp://h/f",), ("cloudstore://files.example.com/eu/a%2Fb",))
    assert of_upload("ftp://h/f", BASE, "no\u200fone") == Lineage(("ftp://h/f",), ())  # an id that no operation accepts
    assert of_upload("ftp://***@h/f?***", BASE, "") == Lineage(("ftp://h/f",), ())


def test_a_batch_leads_from_its_manifest_to_its_receipts_and_a_download_from_its_file_to_its_target() -> None:
    assert of_batch("s3://my_conn@bucket/urls.csv", "/data/receipts") == Lineage(("s3://bucket/urls.csv",), ("/data/receipts",))
    assert of_batch(None, None) == Lineage()
    found = of_download(BASE, "f1", "s3://my_conn@bucket/f")
    assert found == Lineage(("cloudstore://files.example.com/eu/f1",), ("s3://bucket/f",))
