"""DAGs that the operators' tests run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlBatchUploadOperator,
    RemoteUrlUploadOperator,
)

START = datetime(2026, 1, 1)

with DAG("delete", schedule=None, start_date=START, params={"folder": "staging"}) as delete:
    DeleteFolderOperator(task_id="delete", folder_id="{{ params.folder }}")

with DAG("dated_delete", schedule=None, start_date=START, params={"prefix": ""}) as dated_delete:
    DeleteFolderOperator(task_id="delete", folder_id="{{ params.prefix }}-{{ ds }}")

with DAG("delete_nothing", schedule=None, start_date=START) as delete_nothing:
    DeleteFolderOperator(task_id="delete", folder_id="{{ ti.xcom_pull(task_ids='nobody') }}", retries=3)

with DAG("upload", schedule=None, start_date=START, params={"source": Param("", type="string")}) as upload:
    RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")

with DAG("mapped_upload", schedule=None, start_date=START, params={"sources": Param([], type="array")}) as mapped_upload:

    @task
    def sources(params: dict[str, Any]) -> list[str]:
        return list(params["sources"])

    RemoteUrlUploadOperator.partial(task_id="upload").expand(url=sources())

with DAG("link", schedule=None, start_date=START) as link:
    made = DownloadLinkOperator(task_id="link", file_id="f1")

    @task
    def use(token: str, whole: dict[str, Any]) -> list[Any]:
        return [token, whole]

    use(made.output, made.output["download_link"])

with DAG("link_without_xcom", schedule=None, start_date=START) as link_without_xcom:
    DownloadLinkOperator(task_id="link", file_id="f1", do_xcom_push=False)

with DAG(
    "batch",
    schedule=None,
    start_date=START,
    params={"urls": Param([], type=["array", "string"]), "receipts": Param("", type="string")},
) as batch:
    RemoteUrlBatchUploadOperator(task_id="batch", urls="{{ params.urls }}", receipts="{{ params.receipts }}", url_column="link")
