"""Batches in tasks that say under which process id they run, so that a test can kill them."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.airflow.killed_batch import unreliable_store
from tests.authoring import DAG
from tests.real_airflow import AIRFLOW_2

unreliable_store.attach()
FOLDER = Path(os.environ["KILLED_FOLDER"])


class Killable(RemoteUrlBatchUploadOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        written = FOLDER / self.task_id / "pid.new"
        written.write_text(str(os.getpid()))
        written.replace(written.with_suffix(""))  # so that the test never reads half of it
        return super().execute(context)


with DAG("killed", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    for task_id in ["often"] if AIRFLOW_2 else ["often", "unreliable", "terminated"]:
        Killable(
            task_id=task_id,
            urls=str(FOLDER / task_id / "urls.txt"),
            receipts=f"{'unreliable://' if task_id == 'unreliable' else ''}{FOLDER / task_id / 'receipts'}",
            requests_per_second=200,
            max_concurrency=8,
            retries=200,
            retry_delay=timedelta(seconds=0),
        )
