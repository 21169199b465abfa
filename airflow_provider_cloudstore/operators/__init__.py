"""Airflow glue: tasks that use the service."""
