"""Create a download link and pass it to downstream tasks: only the token, or the link with its URL and expiry."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.log import mask_secret

from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator


@task
def use_token(token: str) -> int:
    """Give the token to the system that downloads; this example only counts its characters."""
    mask_secret(token)  # Airflow does not mask XComs
    return len(token)


@task
def announce(link: dict[str, Any]) -> str:
    """Announce that a link exists, but not the link: anyone who can read the log could download the file."""
    return f"File {link['file_id']} can be downloaded until {link['expires_at']}"


with DAG(
    dag_id="example_share_link",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    # Filled in when you trigger a run, or here.
    params={"file_id": Param(os.environ.get("EXAMPLE_FILE_ID"), type="string")},
) as dag:
    link = DownloadLinkOperator(task_id="link", file_id="{{ params.file_id }}")
    # By keyword: Airflow displays a task's rendered arguments, and redacts a token by the argument's name.
    use_token(token=link.output)
    announce(link=link.output["download_link"])
