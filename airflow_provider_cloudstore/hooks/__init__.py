"""Airflow glue: hooks, which turn a connection into a client."""
