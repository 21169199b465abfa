from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Set Airflow's timer of ``execution_timeout``, which must not ring."""

    def ring(*_: Any) -> None:
        raise TimeoutError("execution_timeout rang")

    previous = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)
