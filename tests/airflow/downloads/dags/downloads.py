"""A download, and Airflow's own transfer from ``cloudstore://``, whose targets the test names."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator

folder = os.environ["DOWNLOADS_FOLDER"]

with DAG(
    "downloads", schedule=None, start_date=datetime(2026, 1, 1), default_args={"retries": 0, "retry_delay": timedelta(seconds=1)}
) as dag:
    download = DownloadFileOperator(
        task_id="download",
        file_id="f1",
        target=f"{folder}/downloaded",
        expected_sha256=os.environ["DOWNLOADS_SHA256"],
        wait_for_file=True,
        deferrable=True,
        poll_interval=1,
    )
    transfer = FileTransferOperator(
        task_id="transfer", src="cloudstore:///f1", source_conn_id="cloudstore_default", dst=f"file://{folder}/transferred"
    )
    download >> transfer


def note_pid(task_id: str) -> None:
    Path(f"{folder}/{task_id}.pid").write_text(str(os.getpid()))


class Killable(DownloadFileOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        note_pid(self.task_id)
        return super().execute(context)


with DAG(
    "killed_downloads",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=0)},
):
    Killable(task_id="operator", file_id="f1", target=f"{folder}/operator/")

    @task
    def taskflow() -> None:
        note_pid("taskflow")
        CloudStoreHook().download("f1", f"{folder}/taskflow/")

    taskflow()
