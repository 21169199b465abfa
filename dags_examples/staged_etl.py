"""Stage a file from a remote URL, download and verify it, load it, and always clean up.

Each run creates a folder, uploads into it, and deletes it. The API document has no call that creates a folder: change
``create_folder``, and the parameter ``folder_id`` of the upload, to what your service has.

The service fetches the file itself, so Airflow transfers no bytes before `download`. No link is stored anywhere.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, ObjectStoragePath, Param, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadFileOperator,
    RemoteUrlUploadOperator,
)


@task
def create_folder(name: str) -> str:
    """CHANGE THIS to the call of your service; returns the new folder's id."""
    created = CloudStoreHook().request("POST", "/folder/create", {"folder_name": name})
    return str(created["data"]["folder_id"])


@task
def load(file: dict[str, Any]) -> dict[str, Any]:
    """CHANGE THIS to your own work; this example reads the bytes and removes its copy."""
    path = ObjectStoragePath(file["path"])
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source:
        while chunk := source.read(1024 * 1024):
            digest.update(chunk)
            size += len(chunk)
    path.unlink()
    return {"bytes": size, "sha256": digest.hexdigest()}


@task
def finished() -> None:
    """Ends the run: red if the work or the clean-up failed. Without a task after it, Airflow ignores a failed teardown."""


with DAG(
    dag_id="example_staged_etl",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        # Filled in when you trigger a run, or here.
        "source_url": Param(os.environ.get("EXAMPLE_SOURCE_URL"), type="string", format="uri"),
        "expected_sha256": Param(None, type=["null", "string"], description="of the file; empty to skip the check"),
        "target_folder": Param(
            os.environ.get("EXAMPLE_TARGET_FOLDER", f"{tempfile.gettempdir()}/staged_etl"),
            type="string",
            description="where the file is downloaded to: s3://connection@bucket/prefix, or a folder that all workers see",
        ),
    },
) as dag:
    folder_id: Any = create_folder("{{ dag.dag_id }} {{ run_id }}")  # what a task returns: to type checkers, no text
    upload = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source_url }}", parameters={"folder_id": folder_id})
    # An upload is only queued. This waits in the triggerer, without a worker slot, and then downloads on a worker.
    download = DownloadFileOperator(
        task_id="download",
        file_id=upload.output,
        target="{{ params.target_folder }}/{{ run_id | replace(':', '_') }}",
        expected_sha256="{{ params.expected_sha256 or '' }}",
        wait_for_file=True,
        poll_interval=2,
        timeout=600,
        deferrable=True,
    )
    # A teardown runs even if an earlier task failed. The folder may be gone already if you cleared the task: ignore_missing.
    clean_up = DeleteFolderOperator(task_id="clean_up", folder_id=folder_id, ignore_missing=True)

    loaded = load(download.output)
    upload >> download >> loaded >> clean_up.as_teardown(setups=folder_id)
    [loaded, clean_up] >> finished()
