"""A DAG that starts when one of a few files becomes available."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.common.compat.sdk import get_current_context, task
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_cloudstore.assets.cloudstore import triggering_file_ids
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableEventTrigger

FILES = ["early-1", "early-2", "early-3", "at-the-kill", "late-1", "late-2", "late-3"]
WATCHED = Asset(
    "cloudstore://files.example.com/watched-on-cluster",
    watchers=[
        AssetWatcher(
            name="files", trigger=FileAvailableEventTrigger(file_ids=FILES, poll_interval=2, cloudstore_conn_id="watched")
        )
    ],
)

with DAG("watched_on_cluster", schedule=[WATCHED], start_date=datetime(2026, 1, 1), catchup=False) as dag:

    @task
    def use() -> list[str]:
        """Return the files that triggered this run."""
        return triggering_file_ids(get_current_context())

    use()
