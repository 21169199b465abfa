"""Stage a file from a remote URL, hand it to a downstream task by a download link, and clean up whatever happens.

The service fetches the file itself: its bytes do not pass through Airflow until `load` downloads them.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowException, Param, mask_secret, task

from airflow_provider_cloudstore.operators.cloudstore import (
    DeleteFolderOperator,
    DownloadLinkOperator,
    RemoteUrlUploadOperator,
)


@task
def load(link: dict[str, Any], expected_sha256: str) -> dict[str, Any]:
    """Download by the link, check the bytes, and put your own work here."""
    import requests

    mask_secret(link["token"])  # an XCom is not masked by itself
    digest, size = hashlib.sha256(), 0
    with requests.get(link["url_with_token"], stream=True, timeout=60) as answer:
        if answer.status_code != 200:  # not raise_for_status(): its message holds the link
            raise AirflowException(f"The download of file {link['file_id']} failed: HTTP {answer.status_code}")
        for chunk in answer.iter_content(1024 * 1024):
            digest.update(chunk)
            size += len(chunk)
    if expected_sha256 and digest.hexdigest() != expected_sha256:
        raise AirflowException(f"File {link['file_id']} has the SHA-256 {digest.hexdigest()}, not {expected_sha256}")
    return {"bytes": size, "sha256": digest.hexdigest()}


with DAG(
    dag_id="staged_etl",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        # CHANGE THESE, here or when you trigger a run.
        "source_url": Param(os.environ.get("EXAMPLE_SOURCE_URL", "https://example.com/export.csv"), type="string", format="uri"),
        "expected_sha256": Param(None, type=["null", "string"], description="of the file; empty: not checked"),
        "staging_folder_id": Param("staging", type="string", description="where uploads land; deleted at the end"),
    },
) as dag:
    upload = RemoteUrlUploadOperator(task_id="upload", url="{{ params.source_url }}")
    # An upload is only queued. This waits for the file in the triggerer, without a worker slot, and then makes a fresh link.
    link = DownloadLinkOperator(
        task_id="link", file_id=upload.output["file_id"], wait_for_file=True, poll_interval=2, timeout=600, deferrable=True
    )
    # A teardown runs even when a task in the middle fails; another run may have deleted the folder meanwhile.
    clean_up = DeleteFolderOperator(task_id="clean_up", folder_id="{{ params.staging_folder_id }}", ignore_missing=True)

    # By keyword: Airflow shows the rendered arguments of a task, and hides a token by the name that it is passed under.
    loaded = load(link=link.output["download_link"], expected_sha256="{{ params.expected_sha256 or '' }}")
    upload >> link >> loaded >> clean_up.as_teardown(setups=upload)
