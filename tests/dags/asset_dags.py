"""DAGs whose tasks have an asset as their outlet."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_cloudstore.compat import Asset
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, DownloadLinkOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG

START = datetime(2026, 1, 1)
REPORT = Asset("cloudstore://files.example.com/test-report")

with DAG("asset_deferred_sensor", schedule=None, start_date=START) as deferred_sensor:
    FileAvailableSensor(task_id="wait", file_id="f1", deferrable=True, poke_interval=0.1, timeout=20, outlets=[REPORT])

with DAG("asset_download", schedule=None, start_date=START, params={"target": ""}) as download:
    DownloadFileOperator(task_id="download", file_id="f1", target="{{ params.target }}", outlets=[REPORT])

with DAG("asset_mapped_links", schedule=None, start_date=START) as mapped_links:
    DownloadLinkOperator.partial(task_id="link", outlets=[REPORT]).expand(file_id=["f1"])
