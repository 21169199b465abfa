"""DAGs that the operators' tests run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlUploadOperator,
)
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

START = datetime(2026, 1, 1)

with DAG("upload", schedule=None, start_date=START, params={"source": ""}) as upload:
    RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")

with DAG("uploaded_id", schedule=None, start_date=START, params={"source": ""}) as uploaded_id:
    queued = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")

    @task
    def echo(file_id: str | None) -> str | None:
        return file_id

    echo(queued.output["file_id"])
    DownloadLinkOperator(task_id="link", file_id=queued.output["file_id"], wait_for_file=True, poll_interval=0.1, retries=3)

with DAG("chain", schedule=None, start_date=START, params={"sources": Param([], type="array"), "target": ""}) as chain:

    @task
    def several(params: dict[str, Any]) -> list[str]:
        return list(params["sources"])

    @task
    def collect(links: Any, target: str) -> None:
        """Write what each of the mapped tasks stored, a line each."""
        Path(target).write_text("".join(f"{link['file_id']} {link['url_with_token']}\n" for link in links))

    uploads = RemoteUrlUploadOperator.partial(task_id="upload").expand(url=several())
    ids = uploads.output.map(lambda upload: upload["file_id"])
    waits = FileAvailableSensor.partial(task_id="wait", poke_interval=0.1).expand(file_id=ids)
    links = DownloadLinkOperator.partial(task_id="link").expand(file_id=ids)
    collected = collect(links=links.output["download_link"], target="{{ params.target }}")
    waits >> links
    collected >> DeleteFolderOperator(task_id="clean_up", folder_id="staging")

with DAG("dated_delete", schedule=None, start_date=START, params={"prefix": ""}) as dated_delete:
    DeleteFolderOperator(task_id="delete", folder_id="{{ params.prefix }}-{{ ds }}")

with DAG("delete_nothing", schedule=None, start_date=START) as delete_nothing:
    DeleteFolderOperator(task_id="delete", folder_id="{{ ti.xcom_pull(task_ids='nobody') }}", retries=3)

with DAG("impatient", schedule=None, start_date=START, default_args={"retries": 2, "retry_delay": 0.1}) as impatient:
    DownloadLinkOperator(task_id="link", file_id="typo", wait_for_file=True, poll_interval=0.2, timeout=0.5)
    FileAvailableSensor(task_id="sensor", file_id="typo", poke_interval=0.2, timeout=0.5)

MODES: dict[str, dict[str, Any]] = {"poke": {}, "reschedule": {"mode": "reschedule"}, "deferred": {"deferrable": True}}
SOFT: dict[str, Any] = {"task_id": "wait", "file_id": "f1", "soft_fail": True, "retries": 2, "retry_delay": 0.1}
SOFT_FAIL: dict[str, DAG] = {}
for name, mode in MODES.items():
    with DAG(f"soft_fail_{name}", schedule=None, start_date=START) as SOFT_FAIL[name]:
        FileAvailableSensor(poke_interval=0.2, timeout=1, **SOFT, **mode)

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
