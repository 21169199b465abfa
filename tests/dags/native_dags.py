"""DAGs with native rendering, which evaluates text as a Python literal; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG, task

ID = "2025_01"  # to Python, the number 202501
NATIVE: dict[str, Any] = {"schedule": None, "start_date": datetime(2026, 1, 1), "render_template_as_native_obj": True}
PARAMS = {"id": ID, "hexadecimal": "0x1f", "scientific": "12e5", "source": "", "folder": ""}

with DAG("native_folders", params=PARAMS, **NATIVE) as folders:
    DeleteFolderOperator(task_id="written", folder_id=ID)
    DeleteFolderOperator(task_id="rendered", folder_id="{{ params.hexadecimal }}")
    DeleteFolderOperator.partial(task_id="mapped").expand(folder_id=["1_0", "{{ params.scientific }}"])
    DeleteFolderOperator.partial(task_id="partly", folder_id="7_7").expand(ignore_missing=[False])

    @task
    def number() -> int:
        return 42

    @task
    def several() -> list[Any]:
        return ["4_3", 44]

    counted = number()
    DeleteFolderOperator(task_id="returned", folder_id=counted)
    DeleteFolderOperator.partial(task_id="mapped_returned").expand(folder_id=several())
    DeleteFolderOperator(task_id="pulled", folder_id="{{ ti.xcom_pull('number') + 1 }}").set_upstream(counted)

with DAG("native_files", params=PARAMS, **NATIVE) as files:
    RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}", cloudstore_conn_id=ID)
    wait = FileAvailableSensor(task_id="wait", file_id="{{ params.id }}")
    waits = FileAvailableSensor.partial(task_id="waits").expand(file_id=[ID])
    DownloadLinkOperator(task_id="link", file_id=ID)
    DownloadFileOperator(task_id="download", file_id=ID, target=str(Path("{{ params.folder }}", "1_0")), expected_sha256="")

with DAG("native_urls", params=PARAMS, **NATIVE) as urls:

    @task
    def listed(params: dict[str, Any]) -> list[str]:
        return [f"{params['source']}/{name}" for name in ("1_0", "2_0")]

    sources = listed()
    folder = "{{ params.folder }}"
    RemoteUrlBatchUploadOperator(task_id="output", urls=sources, receipts=f"{folder}/output")
    pull = RemoteUrlBatchUploadOperator(task_id="pull", urls="{{ ti.xcom_pull('listed') | tojson }}", receipts=f"{folder}/pull")
    pull.set_upstream(sources)
    RemoteUrlBatchUploadOperator(task_id="each", urls=["{{ params.source }}/1_0"], receipts=f"{folder}/each")
