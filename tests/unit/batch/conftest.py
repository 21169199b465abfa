"""Stores as the tests of this folder need them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import Entry, Manifest, list_manifest
from tests.unit.batch.folders import MemoryFolder


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


def manifest_of(urls: list[Any]) -> Manifest:
    return (lambda: iter(urls)) if urls and isinstance(urls[0], Entry) else list_manifest(urls)
