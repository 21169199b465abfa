"""Thousands of deferred waits for files that do not come: ours, and the HTTP provider's for the same service.

Only the first wait of each DAG runs on a worker; ``scripts/waits.py`` defers the others.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, task
from airflow.providers.http.sensors.http import HttpSensor

from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

SETTINGS = {"task_id": "wait", "deferrable": True, "poke_interval": 10, "timeout": 3600, "pool": "waits"}
LINK = "cloud/api/v2/file/download?access_token={}&file_id={}"


# The triggerer deserializes the DAG once for each wait: with a list in the DAG file, that alone would take it half a minute.
@task
def file_ids() -> list[str]:
    return [f"wait-{number:05}" for number in range(int(os.environ["WAITS"]))]


@task
def endpoints() -> list[str]:
    return [LINK.format(os.environ["ACCESS_TOKEN"], f"wait-{number:05}") for number in range(int(os.environ["WAITS"]))]


with DAG("ours", schedule=None, start_date=datetime(2026, 1, 1)) as ours:
    FileAvailableSensor.partial(cloudstore_conn_id="ours", **SETTINGS).expand(file_id=file_ids())

with DAG("theirs", schedule=None, start_date=datetime(2026, 1, 1)) as theirs:
    HttpSensor.partial(http_conn_id="theirs", **SETTINGS).expand(endpoint=endpoints())
