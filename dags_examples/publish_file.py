"""Stage a file and tell other DAGs that it is there: an asset event (a dataset event in Airflow 2) with the file's id.

`use_published_file` is a DAG that starts with it. No token is handed over: the consumer makes a link of its own, late.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Asset, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

# CHANGE THIS: the service's host, and what the file is to people. It is a name and no address: each run has its own file id.
REPORT = Asset("cloudstore://files.example.com/daily-report")

with DAG(
    dag_id="publish_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    # CHANGE THIS, here or when you trigger a run.
    params={
        "source_url": Param(os.environ.get("EXAMPLE_SOURCE_URL", "https://example.com/export.csv"), type="string", format="uri")
    },
) as dag:
    upload = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source_url }}")
    # The upload only says that it is queued; the sensor knows that the file is there, so the asset is its outlet.
    FileAvailableSensor(
        task_id="file_is_there", file_id=upload.output["file_id"], deferrable=True, poke_interval=2, timeout=600, outlets=[REPORT]
    )
