"""An upload in a task that says under which process id it runs, so that a test can kill it; or that kills itself after it."""

from __future__ import annotations

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlUploadOperator

SOURCE = "ftp://user:hunter2@127.0.0.1:9/file?sig=hunter3"


class Killable(RemoteUrlUploadOperator):
    """The operator, which notes its process id."""

    def execute(self, context: Any) -> Any:
        (Path(context["params"]["folder"]) / f"{context['ti'].try_number}.pid").write_text(str(os.getpid()))
        result = super().execute(context)
        if self.dag_id == "killed_after" and context["ti"].try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


for dag_id in ("killed_while", "killed_after"):
    with DAG(dag_id, schedule=None, start_date=datetime(2026, 1, 1), params={"folder": ""}) as dag:
        Killable(task_id="upload", url=SOURCE, retries=2, retry_delay=timedelta(seconds=0))
    globals()[dag_id] = dag
