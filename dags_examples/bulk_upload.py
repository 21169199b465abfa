"""Queue every URL of a manifest in one task, as fast as the service allows; retries resume, and receipts list every outcome."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator


@task
def summarize(summary: dict[str, Any]) -> str:
    """The batch's XCom is small: counts, the receipts folder and the first failures."""
    return f"{summary['queued']} of {summary['total']} URLs queued, {summary['skipped']} duplicates"


with DAG(
    dag_id="example_bulk_upload",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    max_active_runs=1,  # the request rate below is that of one run
    # CHANGE THIS: minutes, so that the retries outlast an outage.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10)},
    params={
        # Fill these in when you trigger a run, or here: paths, or s3://connection@bucket/...
        # The manifest is text, CSV or JSON Lines, plain or gzip.
        "manifest": Param(
            os.environ.get("EXAMPLE_MANIFEST"), type="string", description="such as s3://aws_default@bucket/urls.csv.gz"
        ),
        "receipts": Param(
            os.environ.get("EXAMPLE_RECEIPTS"), type="string", description="such as s3://aws_default@bucket/receipts"
        ),
    },
) as dag:
    batch = RemoteUrlBatchUploadOperator(
        task_id="batch",
        urls="{{ params.manifest }}",
        url_column="url",
        # A folder for each run: a new run sends everything, whatever an earlier one has queued.
        receipts="{{ params.receipts }}/{{ run_id | replace(':', '_') }}",
        max_concurrency=16,
        requests_per_second=100,
    )
    summarize(batch.output)
