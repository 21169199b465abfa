"""What the tests of assets, lineage and retry times run, beside the pair of example DAGs."""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Variable, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DownloadFileOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)

START = datetime(2026, 1, 1)
SOURCE = "{{ var.value.canary_source }}"

with DAG("lineage", schedule=None, start_date=START) as lineage:
    RemoteUrlUploadOperator(task_id="upload", url=SOURCE)
    RemoteUrlBatchUploadOperator(task_id="batch", urls=os.environ["STAGED_MANIFEST"], receipts=os.environ["STAGED_RECEIPTS"])

    @task
    def by_hook() -> str | None:
        with CloudStoreHook() as hook:
            return hook.upload_from_url(Variable.get("canary_source")).file_id

    by_hook()
    DownloadFileOperator(task_id="download", file_id="downloaded", target=os.environ["STAGED_TARGET"])
