"""Two hundred uploads, and a deferred wait for each of their files."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Asset, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

WAITS = 200
ARRIVED = Asset("cloudstore://files.example.com/many-waits")

with DAG("many_waits", schedule=None, start_date=datetime(2026, 1, 1), max_active_tasks=WAITS) as dag:

    @task(queue="w3")
    def upload() -> list[str | None]:
        with CloudStoreHook("many_waits") as hook:
            return [hook.upload_from_url(f"https://source.example/{number}").file_id for number in range(WAITS)]

    FileAvailableSensor.partial(
        task_id="wait",
        deferrable=True,
        poke_interval=20,
        timeout=3600,
        outlets=[ARRIVED],
        queue="w3",
        cloudstore_conn_id="many_waits",
    ).expand(file_id=upload())
