"""Airflow glue: waiting that costs no worker."""
