"""The class of ``cloudstore://`` paths in universal_pathlib, which Airflow's ``ObjectStoragePath`` wraps since Airflow 3.2."""

from __future__ import annotations

from fsspec import get_filesystem_class
from upath import UPath

get_filesystem_class("cloudstore")  # universal_pathlib parses paths as the filesystem does once fsspec has loaded it


class CloudStorePath(UPath):
    """A path of the filesystem; without a class, universal_pathlib warns."""
