"""The service's API as values: requests, and what responses and failures mean. Both clients share every decision.

Nothing in here opens a socket, reads a clock, sleeps or imports Airflow.
"""
