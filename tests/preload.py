"""Airflow's local settings for the tests: what the processes preload that fork the tasks."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

# Every task is a fork of such a process. What it would import by itself costs half a second of CPU for each task.
_PRELOADED = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.serialization.serialized_objects",
    "airflow.providers.amazon.aws.hooks.s3",
    "airflow_provider_cloudstore.operators.cloudstore",
    "airflow_provider_cloudstore.operators.waiting",
    "airflow_provider_cloudstore.sensors.cloudstore",
    "airflow_provider_cloudstore.triggers.cloudstore",
    "requests",
)
if {"celery", "scheduler"} & {*sys.argv}:
    for _module in _PRELOADED:
        with suppress(ImportError):  # one that is not installed is not used either
            import_module(_module)
