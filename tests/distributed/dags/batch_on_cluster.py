"""A batch that either worker may run; all that a test varies comes with the run."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

with DAG(
    "batch_on_cluster", schedule=None, start_date=datetime(2026, 1, 1), params={"manifest": Param("", type="string")}
) as dag:
    RemoteUrlBatchUploadOperator(
        task_id="batch",
        urls="{{ params.manifest }}",
        requests_per_second=200,
        max_concurrency=8,
        retries=3,
        retry_delay=timedelta(seconds=0),
    )
