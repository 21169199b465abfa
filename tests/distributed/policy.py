"""Airflow's cluster policy for the tests: which worker runs which task of the example DAG."""

from __future__ import annotations

from typing import Any

WORKER_OF = {"upload": "w1", "download": "w2", "load": "w1", "clean_up": "w2"}


def task_policy(task: Any) -> None:
    """Spread the tasks of ``staged_etl`` over both workers."""
    if task.dag_id == "staged_etl":
        task.queue = WORKER_OF[task.task_id]
