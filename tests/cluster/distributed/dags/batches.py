"""Batches for tests that kill, freeze and interrupt them; where they read, write and send comes with the run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param

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

with DAG("batch_with_timeout", schedule=None, **RUN):
    # It ends three seconds before, so that there is time to save its progress.
    RemoteUrlBatchUploadOperator(task_id="batch", execution_timeout=timedelta(seconds=8), **BATCH)

with DAG("batch_in_parts", schedule=None, **RUN):
    mapped = {name: value for name, value in BATCH.items() if name != "urls"}
    mapped |= {"requests_per_second": 25, "max_concurrency": 4, "pool": "uploads"}
    RemoteUrlBatchUploadOperator.partial(task_id="batch", **mapped).expand(
        urls=[f"{{{{ params.manifest }}}}.{number}" for number in range(PARTS)]
    )

# Periodic, because only then Airflow backfills it; it ended long ago, so that no run starts by itself.
with DAG("batch_of_each_run", schedule="@daily", end_date=datetime(2026, 1, 2), catchup=False, **RUN):
    RemoteUrlBatchUploadOperator(task_id="batch", **BATCH | {"requests_per_second": 40})
