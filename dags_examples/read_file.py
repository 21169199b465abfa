"""Read a file of the service where its bytes are needed: copied by an operator of Airflow's own, or in parts by a task.

No task hands a link to another: `cloudstore://CONNECTION@/FILE_ID` makes one when bytes are needed.
"""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG, ObjectStoragePath, Param, task
from airflow.providers.common.io.operators.file_transfer import FileTransferOperator


@task
def peek(**context: Any) -> str:
    """Read the first bytes of a file, however long it is; pandas takes the same URL."""
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{context['params']['file_id']}")
    with path.open("rb", block_size=1024) as file:
        return str(file.readline().decode(errors="replace"))


with DAG(
    dag_id="read_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    params={
        # CHANGE THESE, here or when you trigger a run.
        "file_id": Param(os.environ.get("EXAMPLE_FILE_ID", "f123"), type="string"),
        "target": Param(f"file://{tempfile.gettempdir()}/read_file", type="string", description="or s3://connection@bucket/key"),
    },
) as dag:
    copy = FileTransferOperator(
        task_id="copy",
        src="cloudstore:///{{ params.file_id }}",
        source_conn_id="cloudstore_default",  # Airflow 2.11 does not read it from the URL here
        dst="{{ params.target }}",
        overwrite=True,
    )
    peek() >> copy
