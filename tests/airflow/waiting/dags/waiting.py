"""A wait for a file with a single worker slot, and a task that needs that slot meanwhile."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator, RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG, task

with DAG("waiting", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    FILE_ID = "{{ ti.xcom_pull(task_ids='upload') }}"
    upload = RemoteUrlUploadOperator(task_id="upload", url="https://source.example/export.bin")
    link = DownloadLinkOperator(
        task_id="link", file_id=FILE_ID, wait_for_file=True, deferrable=True, poll_interval=1, timeout=240
    )
    sensor = FileAvailableSensor(task_id="sensor", file_id=FILE_ID, deferrable=True, poke_interval=1, timeout=240)

    @task
    def meanwhile() -> str:
        return "the slot was free"

    @task
    def use(whole: dict[str, Any]) -> int:
        import requests

        return len(requests.get(whole["url_with_token"], timeout=30).content)

    upload >> [link, sensor, meanwhile()]
    use(whole=link.output["download_link"])
