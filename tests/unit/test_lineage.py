from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.utils.state import TaskInstanceState

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.lineage import Lineage, file_url
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)


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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://user:hunter2@h:9/f?sig=hunter2", ("ftp://h:9", "f")),
        ("s3://my_conn@bucket/a/f", ("s3://bucket", "a/f")),
        ("/data/f", ("file", "/data/f")),
        ("file:///data/f", ("file", "/data/f")),
        (file_url("https://files.example.com/eu", "a/b"), ("cloudstore://files.example.com", "eu/a%2Fb")),
    ],
)
def test_a_dataset_has_the_name_that_openlineage_gives_it_and_no_credentials(url: str, expected: tuple[str, str]) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="make test-lineage has OpenLineage")
    found = Lineage((url, ""), (file_url("https://files.example.com", ""),)).to_openlineage()
    assert [(one.namespace, one.name) for one in found.inputs] == [expected]
    assert found.outputs == []
