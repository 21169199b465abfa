"""Queue millions of URLs on several workers: each task sends one shard of a manifest, and a pool limits the total rate.

The run fails if a shard fails. The XCom of each shard has its counts, and the receipts have every outcome.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

# CHANGE THESE: for ten million URLs 16 shards, and a pool that runs four at a time: airflow pools set cloudstore 4 "uploads"
SHARDS = 4
POOL = "default_pool"
SHARD_RATE = 25.0  # requests per second; four shards at a time make 100


@task
def summarize(summaries: Any) -> str:
    """Add up the shards. One may be empty; all of them are only if the manifest is."""
    found = list(summaries)
    if not any(one["total"] for one in found):
        raise ValueError("The manifest has no URL")
    return f"{sum(one['queued'] for one in found)} of {sum(one['total'] for one in found)} URLs queued"


with DAG(
    dag_id="example_bulk_upload_sharded",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    max_active_runs=1,  # the request rate above is that of one run
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    # CHANGE THIS: minutes, so that the retries outlast an outage.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={
        # Filled in when you trigger a run, or here. All workers must see both: s3://connection@bucket/... or a shared folder.
        "manifest": Param(
            os.environ.get("EXAMPLE_MANIFEST"), type="string", description="such as s3://aws_default@bucket/urls.csv.gz"
        ),
        "receipts": Param(
            os.environ.get("EXAMPLE_RECEIPTS"), type="string", description="such as s3://aws_default@bucket/receipts"
        ),
    },
) as dag:
    batch = RemoteUrlBatchUploadOperator.partial(
        task_id="batch",
        urls="{{ params.manifest }}",
        url_column="url",
        receipts="{{ params.receipts }}/{{ run_id | replace(':', '_') }}",
        requests_per_second=SHARD_RATE,
        pool=POOL,
    ).expand(shard=[[number, SHARDS] for number in range(SHARDS)])
    summarize(batch.output)
