"""Delete a list of folders every night, each in a mapped task with its own log and retries."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_cloudstore.operators.cloudstore import DeleteFolderOperator


@task
def folders_to_delete(**context: Any) -> list[str]:
    """CHANGE THIS to the source of your list: a query, an Airflow variable, yesterday's date."""
    return list(context["params"]["folder_ids"])


with DAG(
    dag_id="example_cleanup",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,  # deletes nothing before you have changed the list and switched it on
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"folder_ids": Param(os.environ.get("EXAMPLE_FOLDER_IDS", "").split(), type="array")},
) as dag:
    # Deleting is permanent: an empty id, or one that could be the root's, is rejected before anything is sent.
    delete = DeleteFolderOperator.partial(task_id="delete", ignore_missing=True, max_active_tis_per_dag=4)
    delete.expand(folder_id=folders_to_delete())
