"""Counts requests through Airflow's ``Stats``. The names are stable: dashboards and alerts depend on them."""

from __future__ import annotations

import logging
from typing import Any

from airflow_provider_cloudstore.compat import Stats
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.operations import Operation

log = logging.getLogger(__name__)


def count_request(operation: Operation[Any], outcome: Any) -> None:
    """Count one request by how it ended: with a result or an error."""
    ended = outcome.metric if isinstance(outcome, CloudStoreError) else "success"
    name = f"cloudstore.requests.{operation.metric}.{ended}"
    try:
        Stats.incr(name)
    except Exception as error:  # noqa: BLE001  (of any metrics client; a failed counter must not deny an upload that was queued)
        log.warning("Could not count %s (%s)", name, type(error).__name__)
