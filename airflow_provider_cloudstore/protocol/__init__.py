"""The service's API as values: what is sent, what an answer means, what a failure asks for.

Nothing in here opens a socket, reads a clock, sleeps or knows Airflow. Both clients use it, so every decision is made once.
"""
