"""Wait for a file and publish its id in an asset event (a dataset event in Airflow 2), which starts `example_use_published_file`.

No token is passed on: the consumer creates its own link when it needs one.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import DAG, Asset, Param

from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

# CHANGE THIS: the service's host and a name for the file. It is not an address: each run may publish another file.
REPORT = Asset("cloudstore://files.example.com/daily-report")

with DAG(
    dag_id="example_publish_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    # Filled in when you trigger a run, or here.
    params={"file_id": Param(os.environ.get("EXAMPLE_FILE_ID"), type="string")},
) as dag:
    # After an upload, the asset is the outlet of the sensor, too, not of the upload: an upload is only queued.
    FileAvailableSensor(
        task_id="wait_for_file", file_id="{{ params.file_id }}", deferrable=True, poke_interval=2, timeout=600, outlets=[REPORT]
    )
