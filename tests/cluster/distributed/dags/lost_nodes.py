"""Tasks whose first try stands still where its node is to be killed, and the DAG that one of them triggers."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, Param, get_current_context, task

from airflow_provider_cloudstore.assets.cloudstore import triggering_file_ids
from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

PUBLISHED = Asset("cloudstore://files.example.com/published-on-cluster")


def _stand_still(context: Any) -> None:
    if context["ti"].try_number == 1:
        (Path(context["params"]["folder"]) / context["ti"].task_id).touch()
        time.sleep(3600)


class StandingUpload(RemoteUrlUploadOperator):
    """Stands still when it has all but ended."""

    def execute(self, context: Any) -> Any:
        result = super().execute(context)
        _stand_still(context)
        return result


class StandingSensor(FileAvailableSensor):
    """Stands still when the id of the file is in its asset event, which Airflow does not have yet."""

    def execute(self, context: Any) -> Any:
        result = super().execute(context)
        _stand_still(context)
        return result


with DAG(
    "lost_nodes",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={"folder": Param("", type="string"), "sha256": Param("", type="string")},
    default_args={"retries": 2, "retry_delay": timedelta(0)},
) as dag:
    RemoteUrlUploadOperator(
        task_id="before_response", url="https://source.example/before", cloudstore_conn_id="stuck_upload", queue="w1"
    )
    StandingUpload(task_id="after_response", url="https://source.example/after", cloudstore_conn_id="upload", queue="w1")
    DownloadFileOperator(
        task_id="download",
        file_id="f1",
        target="{{ params.folder }}/target",
        expected_sha256="{{ params.sha256 }}",
        cloudstore_conn_id="files",
        queue="w2",
    )
    StandingSensor(task_id="publish", file_id="f1", outlets=[PUBLISHED], cloudstore_conn_id="files", queue="w2")

with DAG("use_published_on_cluster", schedule=[PUBLISHED], start_date=datetime(2026, 1, 1), catchup=False) as consumer:

    @task(task_id="use")
    def use_published() -> list[str]:
        """Return the files that triggered this run."""
        return triggering_file_ids(get_current_context())

    use_published()
