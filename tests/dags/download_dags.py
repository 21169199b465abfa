"""DAGs that the tests of downloads run; Airflow takes DAGs from files only."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, RemoteUrlUploadOperator

with DAG(
    "download_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={name: Param("", type="string") for name in ("source", "target", "sha256")},
) as download:
    queued = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")
    file = DownloadFileOperator(
        task_id="download",
        file_id=queued.output["file_id"],
        target="{{ params.target }}",
        expected_sha256="{{ params.sha256 }}",
        wait_for_file=True,
        poll_interval=0.1,
    )

    @task
    def use(found: dict[str, Any]) -> int:
        return Path(found["path"]).stat().st_size

    use(file.output)


class ListingHook(CloudStoreHook):
    """The hook, which lists the target's folder when it creates a link: by then the part exists."""

    found: list[str]

    def create_download_link(self, file_id: str) -> Any:
        self.found = os.listdir(self.folder)
        return super().create_download_link(file_id)

    def list_parts(self, folder: str) -> list[str]:
        self.folder = folder
        self.download("f1", folder)
        return self.found


class ListingOperator(DownloadFileOperator):
    """An operator whose return value is the parts in its folder during the download."""

    def execute(self, context: Any) -> Any:
        return ListingHook().list_parts(self.target)


with DAG("download_parts", schedule=None, start_date=datetime(2026, 1, 1), params={"folder": Param("", type="string")}) as parts:

    @task
    def taskflow(folder: str) -> list[str]:
        return ListingHook().list_parts(folder)

    ListingOperator(task_id="operator", file_id="f1", target="{{ params.folder }}/operator/")
    taskflow("{{ params.folder }}/taskflow/")
