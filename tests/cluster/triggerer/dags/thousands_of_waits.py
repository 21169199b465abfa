"""Thousands of deferred waits for files that do not come.

Only the first wait runs on a worker; the test defers the others.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import DAG, task

from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

SETTINGS = {"task_id": "wait", "deferrable": True, "poke_interval": 10, "timeout": 3600, "pool": "waits"}


# The triggerer deserializes the DAG once for each wait: with a list in the DAG file, that alone would take it half a minute.
@task
def file_ids() -> list[str]:
    return [f"wait-{number:05}" for number in range(int(os.environ["WAITS"]))]


with DAG("ours", schedule=None, start_date=datetime(2026, 1, 1)) as ours:
    FileAvailableSensor.partial(cloudstore_conn_id="ours", **SETTINGS).expand(file_id=file_ids())
