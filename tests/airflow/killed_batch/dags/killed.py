"""A batch in a task that says under which process id it runs, so that a test can kill it."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.authoring import DAG

FOLDER = Path(os.environ["KILLED_FOLDER"])


class Killable(RemoteUrlBatchUploadOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        written = FOLDER / "pid.new"
        written.write_text(str(os.getpid()))
        written.replace(FOLDER / "pid")  # so that the test never reads half of it
        return super().execute(context)


with DAG("killed", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    Killable(
        task_id="batch",
        urls=str(FOLDER / "urls.txt"),
        receipts=str(FOLDER / "receipts"),
        requests_per_second=200,
        max_concurrency=8,
        retries=200,
        retry_delay=timedelta(seconds=0),
    )
