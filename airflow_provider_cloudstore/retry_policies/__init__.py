"""The retry policy, for Airflow 3.3 and later."""
