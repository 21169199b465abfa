"""Queue ten million URLs over several workers: each sends its part of one manifest, and a pool holds one rate for all."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

SHARDS = 16
# CHANGE THIS: a pool with four slots, so that four shards run at once: airflow pools set cloudstore 4 "uploads"
POOL = "default_pool"
RATE_OF_ONE = 25.0  # four at once are 100 requests a second


@task(trigger_rule="all_done")
def summarize(summaries: Any) -> str:
    """Each shard's XCom holds its counts."""
    found = list(summaries)
    return f"{sum(one['queued'] for one in found)} of {sum(one['total'] for one in found)} URLs are queued"


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
        allow_empty=True,  # a part of a short manifest may be empty
        requests_per_second=RATE_OF_ONE,
        pool=POOL,
    ).expand(shard=[[number, SHARDS] for number in range(SHARDS)])
    summarize(batch.output)
