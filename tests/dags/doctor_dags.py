"""A DAG whose task examines its connection."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.authoring import DAG, task

with DAG("doctor", schedule=None, start_date=datetime(2026, 1, 1), params={"source": ""}) as doctor:

    @task
    def examine(params: dict[str, Any]) -> dict[str, Any]:
        from airflow_provider_cloudstore.doctor import diagnose

        return diagnose(upload=params["source"], wait=60).to_dict()

    examine()
