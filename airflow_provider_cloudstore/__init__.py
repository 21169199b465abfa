"""Airflow provider for a cloud file storage service; importing it costs nothing, so only the version stands here."""

__version__ = "0.1.0"
