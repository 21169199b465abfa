"""Waits that defer for a few seconds only."""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator

with DAG("short_waits", schedule=None, start_date=datetime(2026, 1, 1), max_active_tasks=100) as dag:
    DownloadLinkOperator.partial(
        task_id="link", wait_for_file=True, deferrable=True, poll_interval=1, timeout=900, max_active_tis_per_dag=100
    ).expand(file_id=[f"short{number}" for number in range(int(os.environ.get("SHORT_WAITS", "0")))])
