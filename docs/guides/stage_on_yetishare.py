"""Stages files on a YetiShare site: the DAG of the guide "Stage files in a folder and clean up"."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import DAG, PokeReturnValue, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    RemoteUrlUploadOperator,
)


@task
def create_folder(name: str) -> str:
    """Creates the folder of this run, and returns its id."""
    created = CloudStoreHook().request("POST", "/folder/create", {"folder_name": name})
    return str(created["data"]["id"])


@task
def source_urls(**context: Any) -> list[str]:
    """The URLs to upload."""
    return list(context["params"]["source_urls"])


@task.sensor(mode="reschedule", poke_interval=60, timeout=3600)
def files_active(folder_id: str, uploads: Sequence[str]) -> PokeReturnValue:
    """Waits until the folder lists as many files as were uploaded, and returns their ids."""
    listing = CloudStoreHook().request("GET", "/folder/listing", {"parent_folder_id": folder_id})
    files = [str(file["id"]) for file in listing["data"]["files"] if file["status"] == "active"]
    print(f"{len(files)} of {len(uploads)} files are there")
    return PokeReturnValue(len(files) >= len(uploads), files)


@task
def use(file_ids: list[str]) -> int:
    """Downloads the files."""
    with CloudStoreHook() as hook, TemporaryDirectory() as folder:
        files = [hook.download(one, Path(folder) / one) for one in file_ids]
        return sum(file.bytes for file in files)  # CHANGE THIS: use the files


@task
def finished() -> None:
    """Runs only if the tasks before it succeeded."""


with DAG(
    "stage_on_yetishare",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    default_args={
        "pool": "yetishare",
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
    },
    params={"source_urls": ["https://example.com/a.csv", "https://example.com/b.csv"]},
) as dag:
    folder_id = create_folder("{{ dag.dag_id }} {{ run_id }}")
    upload = RemoteUrlUploadOperator.partial(task_id="upload", parameters={"folder_id": folder_id}).expand(url=source_urls())
    used = use(files_active(folder_id, upload.output))
    clean_up = DeleteFolderOperator(task_id="clean_up", folder_id=folder_id)

    used >> clean_up.as_teardown(setups=folder_id)
    [used, clean_up] >> finished()
