"""Stage a file and publish its id in an asset event (a dataset event in Airflow 2), which starts `example_use_published_file`.

No token is passed on: the consumer creates its own link when it needs one.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Asset, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

# CHANGE THIS: the service's host and a name for the file. It is not an address: each run has another file id.
REPORT = Asset("cloudstore://files.example.com/daily-report")

with DAG(
    dag_id="example_publish_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    # Filled in when you trigger a run, or here.
    params={"source_url": Param(os.environ.get("EXAMPLE_SOURCE_URL"), type="string", format="uri")},
) as dag:
    upload = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source_url }}")
    # The asset is the sensor's outlet, not the upload's: an upload is only queued.
    FileAvailableSensor(
        task_id="wait_for_file", file_id=upload.output["file_id"], deferrable=True, poke_interval=2, timeout=600, outlets=[REPORT]
    )
