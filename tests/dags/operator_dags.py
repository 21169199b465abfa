"""DAGs that the operators' tests run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator, RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG, Param, task

START = datetime(2026, 1, 1)

with DAG("uploaded_id", schedule=None, start_date=START, params={"source": ""}) as uploaded_id:
    queued = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")

    @task
    def echo(file_id: str | None) -> str | None:
        return file_id

    echo(queued.output["file_id"])
    DownloadLinkOperator(task_id="link", file_id=queued.output["file_id"], wait_for_file=True, poll_interval=0.1, retries=3)

with DAG("chain", schedule=None, start_date=START, params={"sources": Param([], type="array")}) as chain:

    @task
    def several(params: dict[str, Any]) -> list[str]:
        return list(params["sources"])

    @task
    def collect(links: Any) -> list[Any]:
        return list(links)

    uploads = RemoteUrlUploadOperator.partial(task_id="upload").expand(url=several())
    ids = uploads.output.map(lambda upload: upload["file_id"])
    waits = FileAvailableSensor.partial(task_id="wait", poke_interval=0.1).expand(file_id=ids)
    links = DownloadLinkOperator.partial(task_id="link").expand(file_id=ids)
    collect(links=links.output["download_link"])
    waits >> links

with DAG("link", schedule=None, start_date=START) as link:
    made = DownloadLinkOperator(task_id="link", file_id="f1")

    @task
    def use(token: str, whole: dict[str, Any]) -> list[Any]:
        return [token, whole]

    use(made.output, made.output["download_link"])
