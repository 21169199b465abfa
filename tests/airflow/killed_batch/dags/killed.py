"""A batch in a task that says under which process id it runs, so that a test can kill it; its store may be unreliable."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.airflow.killed_batch import unreliable_store

unreliable_store.attach()


class Killable(RemoteUrlBatchUploadOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        unreliable_store.LUCK.begin(f"try {context['ti'].try_number}")
        pid_file = Path(os.environ["KILLED_PID"])
        written = pid_file.with_suffix(".new")
        written.write_text(str(os.getpid()))
        written.replace(pid_file)  # so that the test never reads half of it
        return super().execute(context)


with DAG("killed", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    Killable(
        task_id="batch",
        urls=os.environ["KILLED_MANIFEST"],
        receipts=os.environ["KILLED_RECEIPTS"],
        requests_per_second=float(os.environ["KILLED_RATE"]),
        max_concurrency=8,
        retries=200,
        retry_delay=timedelta(seconds=0),
    )
