"""A batch for tests that kill, freeze and interrupt it; where it reads, writes and sends comes with the run."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

with DAG(
    "batch",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={name: Param("", type="string") for name in ("manifest", "receipts", "conn_id")},
):
    RemoteUrlBatchUploadOperator(
        task_id="batch",
        urls="{{ params.manifest }}",
        receipts="{{ params.receipts }}",
        cloudstore_conn_id="{{ params.conn_id }}",
        requests_per_second=100,
        max_concurrency=8,
        retries=20,
        retry_delay=timedelta(seconds=0),
    )
