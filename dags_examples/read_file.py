"""Read a file through `cloudstore://CONNECTION@/FILE_ID`: copy it with an operator of Airflow's, or read parts of it in a task.

No task passes on a link: the filesystem creates one when it reads.
"""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from typing import Any

from airflow.providers.common.io.operators.file_transfer import FileTransferOperator
from airflow.sdk import DAG, ObjectStoragePath, Param, task


@task
def peek(**context: Any) -> str:
    """Read only the first bytes of a file of any size; pandas accepts the same URL."""
    path = ObjectStoragePath(f"cloudstore://cloudstore_default@/{context['params']['file_id']}")
    with path.open("rb", block_size=1024) as file:
        return str(file.readline().decode(errors="replace"))


with DAG(
    dag_id="example_read_file",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    params={
        # Filled in when you trigger a run, or here.
        "file_id": Param(os.environ.get("EXAMPLE_FILE_ID"), type="string"),
        "target": Param(f"file://{tempfile.gettempdir()}/read_file", type="string", description="or s3://connection@bucket/key"),
    },
) as dag:
    copy = FileTransferOperator(
        task_id="copy",
        src="cloudstore:///{{ params.file_id }}",
        source_conn_id="cloudstore_default",  # FileTransferOperator of Airflow 2.11 ignores the one in the URL
        dst="{{ params.target }}",
        overwrite=True,
    )
    peek() >> copy
