"""The service's API as values: requests, and what responses and failures mean. Both clients share every decision.

Nothing in here opens a socket, reads a clock or sleeps; of Airflow, it uses the base classes of `exceptions.py`.
"""
