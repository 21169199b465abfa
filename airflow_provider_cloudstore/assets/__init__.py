"""Airflow glue: files as assets."""
