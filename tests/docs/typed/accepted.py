"""What type checkers must accept of our signatures: mypy strict reads this file in ``make lint``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import requests
from airflow.sdk import DAG, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor


@task
def make_text() -> str:
    return "text"


@task
def make_list() -> list[str]:
    return ["text"]


@task
def use(token: str, link: dict[str, Any], file_id: str) -> None:
    pass


def fetch() -> bytes:
    with CloudStoreHook() as hook:
        session: requests.Session = hook.get_conn()
        return session.get("https://example.com/a.csv", timeout=30).content


with DAG("typed", schedule=None, start_date=datetime(2026, 1, 1)):
    text = make_text()
    upload = RemoteUrlUploadOperator(task_id="upload", url=text)
    other = RemoteUrlUploadOperator(task_id="other", url=upload.output)
    DownloadLinkOperator(task_id="number", file_id=17)
    wait = FileAvailableSensor(task_id="sensor", file_id=upload.output)
    link = DownloadLinkOperator(task_id="link", file_id=wait.output)
    DeleteFolderOperator(task_id="delete", folder_id=17, ignore_missing=True)
    DeleteFolderOperator(task_id="delete_made", folder_id=text)
    RemoteUrlBatchUploadOperator(task_id="batch", urls=make_list(), receipts="s3://bucket/receipts")
    use(token=link.output, link=link.output["download_link"], file_id=wait.output)
