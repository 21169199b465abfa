"""Every operator on every service of the test, and a task that pulls all that they stored."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, get_current_context, task

from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlUploadOperator,
)

SERVICES = os.environ["ODD_SERVICES"].split(",")


@task(trigger_rule="all_done", retries=0)
def pull(task_ids: list[str]) -> None:
    """Pull every XCom, and write down what it is: a type that JSON does not know is written as its name."""
    ti = get_current_context()["ti"]

    def get(task_id: str, key: str) -> Any:
        try:
            return ti.xcom_pull(task_ids=task_id, key=key)
        except Exception as error:  # noqa: BLE001  (the test sees it)
            return f"<{type(error).__name__}>"

    found = {task_id: get(task_id, "return_value") for task_id in task_ids}
    found |= {f"{task_id} download_link": get(task_id, "download_link") for task_id in task_ids}
    Path(os.environ["ODD_PULLED"]).write_text(json.dumps(found, default=lambda value: f"<{type(value).__name__}>"))


with DAG("odd_responses", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    again = {"retries": 2, "retry_delay": timedelta(seconds=1)}
    tasks: list[Any] = []
    for name in SERVICES:
        more: dict[str, Any] = {"cloudstore_conn_id": f"odd_{name}", **again}
        tasks += [
            DeleteFolderOperator(task_id=f"delete.{name}", folder_id="doomed", **more),
            RemoteUrlUploadOperator(task_id=f"upload.{name}", url="ftp://127.0.0.1:9/file", **more),
            DownloadLinkOperator(task_id=f"link.{name}", file_id="f1", **more),
        ]
    tasks >> pull([one.task_id for one in tasks])
