"""A DAG that the tests of downloads run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, RemoteUrlUploadOperator
from tests.authoring import DAG, Param, task

with DAG(
    "download_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={name: Param("", type="string") for name in ("source", "target", "sha256")},
) as download:
    queued = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")
    file = DownloadFileOperator(
        task_id="download",
        file_id=queued.output,
        target="{{ params.target }}",
        expected_sha256="{{ params.sha256 }}",
        wait_for_file=True,
        poll_interval=0.1,
    )

    @task
    def use(found: dict[str, Any]) -> int:
        return Path(found["path"]).stat().st_size

    use(file.output)
