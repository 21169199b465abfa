"""DAGs that the operators' tests run; Airflow takes DAGs from files only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import DownloadFileOperator, DownloadLinkOperator, RemoteUrlUploadOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.authoring import DAG, Param, task

START = datetime(2026, 1, 1)


@task
def several(params: dict[str, Any]) -> list[str]:
    return list(params["sources"])


with DAG("uploaded_id", schedule=None, start_date=START, params={"source": ""}) as uploaded_id:
    queued = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}")

    @task
    def echo(file_id: str | None) -> str | None:
        return file_id

    echo(queued.output)
    DownloadLinkOperator(task_id="link", file_id=queued.output, wait_for_file=True, poll_interval=0.1, retries=3)

with DAG("chain", schedule=None, start_date=START, params={"sources": Param([], type="array")}) as chain:

    @task
    def collect(links: Any, queued: Any) -> dict[str, list[Any]]:
        return {"links": list(links), "uploads": list(queued)}

    uploads = RemoteUrlUploadOperator.partial(task_id="upload").expand(url=several())
    waits = FileAvailableSensor.partial(task_id="wait", poke_interval=0.1).expand(file_id=uploads.output)
    links = DownloadLinkOperator.partial(task_id="link").expand(file_id=waits.output)
    collect(links=links.output["download_link"], queued=uploads.output["upload"])

with DAG("uploads_that_wait", schedule=None, start_date=START, params={"sources": Param([], type="array")}) as uploads_that_wait:
    waiting: dict[str, Any] = {"wait_for_file": True, "deferrable": True, "poll_interval": 0.1, "timeout": 60}
    RemoteUrlUploadOperator(task_id="single", url="{{ params.sources[0] }}", **waiting)
    arrived = RemoteUrlUploadOperator.partial(task_id="mapped", **waiting).expand(url=several())
    DownloadLinkOperator.partial(task_id="link").expand(file_id=arrived.output)

with DAG("deferred", schedule=None, start_date=START, params={"source": "", "target": ""}) as deferred:
    RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}", **waiting)
    RemoteUrlUploadOperator.partial(task_id="mapped", **waiting).expand(url=["{{ params.source }}"])
    RemoteUrlUploadOperator(task_id="unpushed", url="{{ params.source }}", do_xcom_push=False, **waiting)
    RemoteUrlUploadOperator.partial(task_id="each", do_xcom_push=False, **waiting).expand(url=["{{ params.source }}"])
    FileAvailableSensor(task_id="sensor", file_id="f1", deferrable=True, poke_interval=0.1)
    DownloadLinkOperator(task_id="link", file_id="f2", **waiting)
    DownloadFileOperator(task_id="download", file_id="f3", target="{{ params.target }}", **waiting)

with DAG("pages", schedule=None, start_date=START, params={"source": "", "target": ""}) as pages:
    paged = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source }}", wait_for_file=True, poll_interval=0.1)
    FileAvailableSensor(task_id="sensor", file_id=paged.output)
    DownloadLinkOperator(task_id="link", file_id=paged.output)
    DownloadFileOperator(task_id="download", file_id=paged.output, target="{{ params.target }}")

with DAG("sensor", schedule=None, start_date=START) as sensor:
    for mode in ("poke", "reschedule"):
        FileAvailableSensor(task_id=mode, file_id="f1", mode=mode)
    FileAvailableSensor(task_id="deferrable", file_id="f1", deferrable=True)
