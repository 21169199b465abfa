"""DAGs whose tasks have an asset as their outlet."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_cloudstore.compat import Asset, AssetAlias
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

with DAG("asset_alias", schedule=None, start_date=START) as alias:
    DownloadLinkOperator(task_id="link", file_id="f1", outlets=[AssetAlias("test-reports")])

with DAG("asset_alias_deferred_sensor", schedule=None, start_date=START) as alias_deferred_sensor:
    FileAvailableSensor(
        task_id="wait", file_id="f1", deferrable=True, poke_interval=0.1, timeout=20, outlets=[AssetAlias("test-reports")]
    )

with DAG("asset_reference", schedule=None, start_date=START) as reference:
    outlet = Asset.ref(uri=REPORT.uri) if hasattr(Asset, "ref") else REPORT  # Airflow 2
    DownloadLinkOperator(task_id="link", file_id="f1", inlets=[REPORT], outlets=[outlet])
