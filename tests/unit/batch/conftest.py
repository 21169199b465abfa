"""A store as the tests of this folder need it."""

from __future__ import annotations

import pytest

from tests.unit.batch.folders import MemoryFolder


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()
