"""A download, and Airflow's own transfer from ``cloudstore://``, whose targets the test names."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.providers.common.compat.sdk import DAG
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator

from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator

with DAG(
    "downloads", schedule=None, start_date=datetime(2026, 1, 1), default_args={"retries": 0, "retry_delay": timedelta(seconds=1)}
) as dag:
    folder = os.environ["DOWNLOADS_FOLDER"]
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
