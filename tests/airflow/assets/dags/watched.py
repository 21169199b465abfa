"""A DAG that starts when a file becomes available. Airflow 3."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, Asset, get_current_context, task

from airflow_provider_cloudstore.assets.cloudstore import triggering_file_ids
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableEventTrigger

try:
    from airflow.sdk import AssetWatcher
except ImportError:  # Airflow 2 has no watchers
    pass
else:
    trigger = FileAvailableEventTrigger(file_ids=["watched-1", "watched-2", "never"], poll_interval=1)
    WATCHED = Asset(
        "cloudstore://files.example.com/watched",
        watchers=[AssetWatcher(name="files", trigger=trigger)],
    )

    with DAG("watched", schedule=[WATCHED], start_date=datetime(2026, 1, 1), catchup=False) as dag:

        @task
        def seen() -> list[str]:
            return triggering_file_ids(get_current_context())

        seen()
