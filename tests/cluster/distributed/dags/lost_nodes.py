"""Uploads and a download whose first try stands still, or waits, where its node or the triggerer is to be killed."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, RemoteUrlUploadOperator


class StandingUpload(RemoteUrlUploadOperator):
    """Stands still when it has all but ended."""

    def execute(self, context: Any) -> Any:
        result = super().execute(context)
        if context["ti"].try_number == 1:
            (Path(context["params"]["folder"]) / "after_response").touch()
            time.sleep(3600)
        return result


with DAG(
    "lost_nodes",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={"folder": Param("", type="string"), "sha256": Param("", type="string")},
    default_args={"retries": 2, "retry_delay": timedelta(0)},
) as dag:
    RemoteUrlUploadOperator(
        task_id="before_response", url="https://source.example/before", cloudstore_conn_id="stuck_upload", queue="w1"
    )
    StandingUpload(task_id="after_response", url="https://source.example/after", cloudstore_conn_id="upload", queue="w1")
    waiting: dict[str, Any] = {"wait_for_file": True, "poll_interval": 0.5, "timeout": 300}
    RemoteUrlUploadOperator(
        task_id="polling", url="https://source.example/{{ ti.try_number }}", cloudstore_conn_id="polled", queue="w1", **waiting
    )
    RemoteUrlUploadOperator(
        task_id="deferred", url="https://source.example/d", cloudstore_conn_id="deferred", deferrable=True, queue="w2", **waiting
    )
    DownloadFileOperator(
        task_id="download",
        file_id="f1",
        target="{{ params.folder }}/target",
        expected_sha256="{{ params.sha256 }}",
        cloudstore_conn_id="files",
        queue="w2",
    )
