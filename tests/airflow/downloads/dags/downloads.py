"""A download, and Airflow's own transfer from ``cloudstore://``, to the folder that a run is given."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, get_current_context, task
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator

FOLDER = "{{ params.folder }}"

with DAG("downloads", schedule=None, start_date=datetime(2026, 1, 1), params={"folder": "", "sha256": ""}) as dag:
    download = DownloadFileOperator(
        task_id="download",
        file_id="f1",
        target=f"{FOLDER}/downloaded",
        expected_sha256="{{ params.sha256 }}",
        wait_for_file=True,
        deferrable=True,
        poll_interval=1,
    )
    transfer = FileTransferOperator(
        task_id="transfer", src="cloudstore:///f1", source_conn_id="cloudstore_default", dst=f"file://{FOLDER}/transferred"
    )
    download >> transfer


def note_pid(context: Any) -> None:
    (Path(context["params"]["folder"]) / f"{context['ti'].task_id}.pid").write_text(str(os.getpid()))


class Killable(DownloadFileOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        note_pid(context)
        return super().execute(context)


with DAG(
    "killed_downloads",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={"folder": ""},
    default_args={"retries": 1, "retry_delay": timedelta(seconds=0)},
):
    Killable(task_id="operator", file_id="f1", target=f"{FOLDER}/operator/")

    @task
    def taskflow() -> None:
        context = get_current_context()
        note_pid(context)
        CloudStoreHook().download("f1", f"{context['params']['folder']}/taskflow/")

    taskflow()
