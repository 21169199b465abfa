"""Download each file that `example_publish_file` has published; its asset event starts this DAG.

Run `example_publish_file` to see both. A run that you start by hand has no event; it downloads the file in its form.
"""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, Param, task

from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook

REPORT = Asset("cloudstore://files.example.com/daily-report")  # as in example_publish_file


@task
def published(**context: Any) -> list[str]:
    """Return the ids of the files that started this run; one run can have several events."""
    by_asset: Any = context.get("triggering_asset_events") or {}  # a run by hand may have none
    ids = {event.extra["file_id"] for events in by_asset.values() for event in events}
    by_hand = context["params"]["file_id"]
    return sorted(ids) or ([by_hand] if by_hand else [])


@task
def use(file_id: str) -> dict[str, Any]:
    """Download the file with a link that is created here and stored nowhere."""
    with CloudStoreHook() as hook:
        return hook.download(file_id, Path(tempfile.mkdtemp()) / "report").to_dict()


with DAG(
    dag_id="example_use_published_file",
    schedule=[REPORT],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    tags=["cloudstore", "example"],
    doc_md=__doc__,
    params={
        "file_id": Param(os.environ.get("EXAMPLE_FILE_ID"), type=["null", "string"], description="for a run without an event")
    },
) as dag:
    use.expand(file_id=published())
