"""Waits of every kind: for a file that comes, and for one that does not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_cloudstore.operators.cloudstore import DownloadLinkOperator
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor

MODES: dict[str, dict[str, Any]] = {
    "poke": {"mode": "poke"},
    "reschedule": {"mode": "reschedule"},
    "deferred": {"deferrable": True},
}
DEFERS = 20
"""A wait of so many seconds is deferred, after five on the worker."""

with DAG(
    "wait_modes",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    max_active_tasks=32,
    default_args={
        "cloudstore_conn_id": "wait_modes",
        "queue": "w3",
        "retries": 2,
        "retry_delay": timedelta(0),
        "poke_interval": 3,
        "poll_interval": 3,
    },
) as dag:
    for name, mode in MODES.items():
        seconds = DEFERS if name == "deferred" else 4
        FileAvailableSensor(task_id=f"{name}_found", file_id="comes", timeout=3600, **mode)
        FileAvailableSensor(task_id=f"{name}_timeout", file_id="never", timeout=seconds, **mode)
        FileAvailableSensor(task_id=f"{name}_soft_fail", file_id="never", timeout=seconds, soft_fail=True, **mode)
    DownloadLinkOperator(task_id="link_timeout", file_id="never", wait_for_file=True, deferrable=True, timeout=DEFERS)
