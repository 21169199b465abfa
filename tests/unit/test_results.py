from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore import results
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from tests.support import context, store_file

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"
XCOMS: list[tuple[Any, str, dict[str, Any], Any]] = [
    (DeleteFolderOperator, "return_value", {"folder_id": "staging"}, results.FolderDeletionXCom),
    (RemoteUrlUploadOperator, "upload", {"url": SOURCE}, results.RemoteUploadXCom),
    (DownloadLinkOperator, "download_link", {"file_id": "f1"}, results.DownloadLinkXCom),
    (DownloadFileOperator, "return_value", {"file_id": "f1", "target": "FOLDER/f"}, results.DownloadedFileXCom),
    (RemoteUrlBatchUploadOperator, "return_value", {"urls": [SOURCE], "receipts": None}, results.BatchXCom),
]
"""Each operator, the key of its XCom, its arguments, and the type of the XCom."""


@pytest.mark.parametrize(("operator", "key", "arguments", "kind"), XCOMS, ids=lambda given: getattr(given, "__name__", ""))
def test_the_xcom_of_each_operator_is_plain_data_with_exactly_the_keys_of_its_type(
    emulator: Emulator, tmp_path: Path, operator: Any, key: str, arguments: dict[str, Any], kind: Any
) -> None:
    store_file(emulator)
    pushed: dict[str, Any] = {}
    if "target" in arguments:
        arguments = {**arguments, "target": str(tmp_path / "f")}
    pushed["return_value"] = operator(task_id="t", **arguments).execute(context(pushed))
    assert pushed[key].keys() == kind.__annotations__.keys()
    assert json.loads(json.dumps(pushed[key])) == pushed[key]


def test_a_failure_in_the_summary_of_a_batch_has_exactly_the_keys_of_its_type(emulator: Emulator) -> None:
    emulator.fault("status", operation="upload", status=400, times=0)
    pushed: dict[str, Any] = {}
    with pytest.raises(Exception, match="failed"):
        RemoteUrlBatchUploadOperator(task_id="t", urls=[SOURCE], receipts=None).execute(context(pushed))
    (failure,) = pushed["return_value"]["failures"]
    assert failure.keys() == results.BatchFailure.__annotations__.keys()


def test_a_result_as_a_dict_has_its_dates_in_utc_and_shows_its_token_nowhere_else(emulator: Emulator) -> None:
    store_file(emulator)
    with CloudStoreHook() as hook:
        link = hook.create_download_link("f1")
    stored = link.to_dict()
    assert stored["created_at"] == link.created_at.in_timezone("UTC").to_iso8601_string()
    assert stored["created_at"].endswith("Z")
    assert stored["token"] == link.token
    assert link.token not in repr(link)


def test_nothing_is_pushed_where_xcoms_are_off(emulator: Emulator) -> None:
    store_file(emulator)
    pushed: dict[str, Any] = {}
    DownloadLinkOperator(task_id="link", file_id="f1", do_xcom_push=False).execute(context(pushed))
    assert pushed == {}
