"""Ends calls before Airflow's ``execution_timeout`` alarm, so that the user gets an error that says what happened."""

from __future__ import annotations

import math
import signal

from airflow_provider_cloudstore.protocol.attempts import DEFAULT_BUDGET


def time_left() -> float:
    """Return the seconds until Airflow's alarm for ``execution_timeout``, or infinity if no alarm is set."""
    return signal.getitimer(signal.ITIMER_REAL)[0] or math.inf


def time_budget() -> float:
    """Return the seconds that a call may take: five minutes, or the time until a second before Airflow's alarm if shorter."""
    left = time_left()
    return min(DEFAULT_BUDGET, left - min(1.0, left / 10))
