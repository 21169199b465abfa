from __future__ import annotations

import signal

import pytest

from airflow_provider_cloudstore.hooks.time_budget import time_budget


def test_a_call_ends_before_airflows_alarm_and_after_five_minutes_at_the_latest() -> None:
    assert time_budget() == 300
    previous = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        for alarm, budget in ((1000, 300), (100, 99), (5, 4.5), (0.5, 0.45)):
            signal.setitimer(signal.ITIMER_REAL, alarm)
            assert time_budget() == pytest.approx(budget, abs=0.1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
