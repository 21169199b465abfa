"""Thousands of waits in one triggerer, with the connection in Airflow's database, as most people have it.

Slow: ``make test-triggerer`` runs it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.cluster import missing
from tests.cluster.triggerer import waits

pytestmark = pytest.mark.slow

WAITS = 2000
SOCKETS = 32
SHARE = 0.95
"""Of the polls that the waits should make, those that they must make."""
MINUTE, TWO_MINUTES = 60.0, 120.0


def test_two_thousand_waits_keep_their_interval_over_few_sockets_also_after_a_restart(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"no cluster can be run here: {reason}")
    with Emulator() as emulator, waits.cluster_for(tmp_path / "home", emulator, WAITS) as cluster:
        polls = waits.Polls(emulator)
        run_id = waits.defer(cluster, "ours", WAITS)
        first = polls.observe(cluster, WAITS, MINUTE, until_all=True)
        cluster["triggerer"].kill()
        cluster.start("triggerer")
        again = polls.observe(cluster, WAITS, MINUTE, until_all=True)
        later = polls.observe(cluster, WAITS, TWO_MINUTES)
        share = later.polls / (WAITS * TWO_MINUTES / waits.INTERVAL)
        print(f"all polled after {first.all} s, after a restart within {again.all} s; {share:.1%} of the polls asked for")
        assert first.waits == again.waits == later.waits == WAITS
        assert share >= SHARE
        assert max(first.sockets, again.sockets, later.sockets) <= SOCKETS
        polls.end(cluster, run_id, 5)
