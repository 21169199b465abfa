"""Batches for tests that kill, freeze and interrupt them; where they read, write and send comes with the run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

PARTS = 4
BATCH: dict[str, Any] = {
    "urls": "{{ params.manifest }}",
    "receipts": "{{ params.receipts }}",
    "cloudstore_conn_id": "{{ params.conn_id }}",
    "requests_per_second": 100,
    "max_concurrency": 8,
    "retries": 20,
    "retry_delay": timedelta(seconds=0),
}
RUN: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1),
    "params": {name: Param("", type="string") for name in ("manifest", "receipts", "conn_id")},
}


with DAG("batch", schedule=None, **RUN):
    RemoteUrlBatchUploadOperator(task_id="batch", **BATCH)
