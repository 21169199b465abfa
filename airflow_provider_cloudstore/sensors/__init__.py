"""Airflow glue: tasks that wait."""
