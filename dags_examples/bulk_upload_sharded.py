"""Queue ten million URLs on several workers: each sends one shard of a manifest, and a pool limits the total rate."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

SHARDS = 16
# CHANGE THIS to a pool with four slots, so that four shards run at a time: airflow pools set cloudstore 4 "uploads"
POOL = "default_pool"
SHARD_RATE = 25.0  # requests per second; four shards at a time make 100


@task(trigger_rule="all_done")
def summarize(summaries: Any) -> str:
    """Each shard returns its counts."""
    found = list(summaries)
    return f"{sum(one['queued'] for one in found)} of {sum(one['total'] for one in found)} URLs queued"


with DAG(
    dag_id="bulk_upload_sharded",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    params={
        "manifest": Param("s3://aws_default@bucket/urls.csv.gz", type="string"),
        "receipts": Param("s3://aws_default@bucket/receipts", type="string"),
    },
) as dag:
    batch = RemoteUrlBatchUploadOperator.partial(
        task_id="batch",
        urls="{{ params.manifest }}",
        receipts="{{ params.receipts }}",
        allow_empty=True,  # a shard of a short manifest may be empty
        requests_per_second=SHARD_RATE,
        pool=POOL,
    ).expand(shard=[[number, SHARDS] for number in range(SHARDS)])
    summarize(batch.output)
