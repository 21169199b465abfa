"""The service's API as values: requests, and the meanings of responses and failures. Both clients share every decision.

Nothing in this package opens a socket, reads a clock or sleeps. From Airflow, it uses only the base classes of `exceptions.py`.
"""
