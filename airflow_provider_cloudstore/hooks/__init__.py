"""Airflow glue: from a connection to a client."""
