"""Start when `publish_file` has published a file, and download it by a link of one's own, made where it is used."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowException, Asset, get_current_context, task

from airflow_provider_cloudstore.assets.cloudstore import triggering_file_ids
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

REPORT = Asset("cloudstore://files.example.com/daily-report")  # as in publish_file


@task
def published() -> list[str]:
    """The ids of the files that this run is for: several events can start one run."""
    return triggering_file_ids(get_current_context())


@task
def use(file_id: str) -> dict[str, Any]:
    """Make a link and use it at once: it is stored nowhere, and as young as it can be."""
    import requests

    with CloudStoreHook() as hook:
        link = hook.create_download_link(file_id)
    with requests.get(str(link.url_with_token), stream=True, timeout=60) as response:
        if response.status_code != 200:  # not raise_for_status(): its message holds the link
            raise AirflowException(f"The download of file {file_id} failed: HTTP {response.status_code}")
        size = sum(len(chunk) for chunk in response.iter_content(1024 * 1024))
    return {"file_id": file_id, "bytes": size}


with DAG(
    dag_id="use_published_file",
    schedule=[REPORT],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    tags=["cloudstore", "example"],
    doc_md=__doc__,
) as dag:
    use.expand(file_id=published())
