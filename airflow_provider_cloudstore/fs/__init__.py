"""Airflow glue: files of the service as a filesystem."""
