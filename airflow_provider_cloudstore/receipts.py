"""Reads the receipts of a batch, and writes what failed as a manifest."""

from airflow_provider_cloudstore.batch.receipts import read_receipts, write_failed

__all__ = ["read_receipts", "write_failed"]
