"""Where the Airflow versions differ and ``common.compat`` does not say so already: everybody else asks here."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import BaseOperator

HAS_RETRY_POLICIES = hasattr(BaseOperator, "has_retry_policy")
"""Airflow 3.3 and later."""
