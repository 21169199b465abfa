"""A batch in a task that says under which process id it runs, so that a test can kill it; what it reads comes with the run."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.airflow.killed_batch import unreliable_store

unreliable_store.attach()


class Killable(RemoteUrlBatchUploadOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        pid_file = Path(context["params"]["folder"], "pid")
        written = pid_file.with_suffix(".new")
        written.write_text(str(os.getpid()))
        written.replace(pid_file)  # so that the test never reads half of it
        return super().execute(context)


with DAG(
    "killed",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    params={name: Param("", type="string") for name in ("folder", "scheme")},
) as dag:
    Killable(
        task_id="batch",
        urls="{{ params.folder }}/urls.txt",
        receipts="{{ params.scheme }}{{ params.folder }}/receipts",
        requests_per_second=200,
        max_concurrency=8,
        retries=200,
        retry_delay=timedelta(seconds=0),
    )
