"""The DAG that the batch operator's tests run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

with DAG(
    "batch",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={"urls": Param([], type=["array", "string"]), "receipts": Param("", type="string")},
) as batch:
    RemoteUrlBatchUploadOperator(task_id="batch", urls="{{ params.urls }}", receipts="{{ params.receipts }}", url_column="link")
