"""Real neighbours as fixtures; a test is skipped, with the reason, where the program is not on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.wire.neighbours.servers import S3, Azurite, Missing


@pytest.fixture
def run_neighbour() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a neighbour until the end of the test: ``run_neighbour(lambda: Nginx(config))``."""
    with ExitStack() as stack:

        def run(make: Callable[[], Any]) -> Any:
            try:
                return stack.enter_context(make())
            except Missing as missing:
                pytest.skip(str(missing))

        yield run


@pytest.fixture
def s3(run_neighbour: Callable[[Callable[[], S3]], S3]) -> S3:
    """An S3."""
    return run_neighbour(S3)


@pytest.fixture
def azurite(run_neighbour: Callable[[Callable[[], Azurite]], Azurite]) -> Azurite:
    """An Azure Blob Storage."""
    return run_neighbour(Azurite)
