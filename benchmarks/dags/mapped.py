"""The same URLs, once as mapped tasks of the HTTP provider and once as one batch."""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.http.operators.http import HttpOperator
from airflow.sdk import DAG

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator

URLS = [f"https://source.example/{number}" for number in range(int(os.environ["BENCH_URLS"]))]

with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1)) as mapped:
    HttpOperator.partial(
        task_id="upload",
        http_conn_id="theirs",
        endpoint="/cloud/api/v2/file/url_upload_add",
        headers={"Authorization": "Bearer token"},
    ).expand(data=[{"url": url} for url in URLS])

with DAG("batched", schedule=None, start_date=datetime(2026, 1, 1)) as batched:
    RemoteUrlBatchUploadOperator(task_id="upload", urls=URLS, receipts=os.environ["BENCH_RECEIPTS"])
