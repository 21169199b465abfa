"""Thousands of waits in one triggerer, with the connection in Airflow's database, as most people have it.

Slow: ``make test-triggerer`` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts import waits
from scripts.cluster import Cluster, missing
from scripts.waits import Figures, Polls
from tests.guarantees import Proof, guarantee

pytestmark = pytest.mark.slow

WAITS = 2000
SOCKETS = 32
SHARE = 0.95
MINUTE, TWO_MINUTES = 60.0, 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster whose triggerer has all waits, and the service that they poll."""

    cluster: Cluster
    polls: Polls
    run_id: str
    first: Figures


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if reason := missing():
        pytest.skip(f"no cluster can be run here: {reason}")
    home = tmp_path_factory.mktemp("cluster")
    with Emulator() as emulator, waits.cluster_for(home / "home", emulator, WAITS) as cluster:
        polls = Polls(emulator)
        run_id = waits.defer(cluster, "ours", WAITS)
        yield Stage(cluster, polls, run_id, polls.observe(cluster, WAITS, MINUTE, until_all=True))


@guarantee("waits", "none: 2,000 waits in one triggerer, the connection in Airflow's database")
def test_every_wait_polls_within_a_minute_of_the_last_one(stage: Stage, proven: Proof) -> None:
    assert stage.first.sockets <= SOCKETS
    proven(requests=stage.first.polls, lost=WAITS - stage.first.waits, seconds=stage.first.all)


@guarantee("waits", "a triggerer with 2,000 waits is killed and restarted: every wait polls again")
def test_every_wait_polls_again_within_a_minute_of_a_restart(stage: Stage, proven: Proof) -> None:
    stage.cluster["triggerer"].kill()
    stage.cluster.start("triggerer")
    figures = stage.polls.observe(stage.cluster, WAITS, MINUTE, until_all=True)
    assert figures.sockets <= SOCKETS
    proven(requests=figures.polls, lost=WAITS - figures.waits, seconds=figures.all)


@guarantee("waits", "none: 2,000 waits keep their interval: at least 95 % of the polls asked for")
def test_the_waits_keep_their_interval_over_few_sockets_and_end_when_their_files_come(stage: Stage, proven: Proof) -> None:
    figures = stage.polls.observe(stage.cluster, WAITS, TWO_MINUTES)
    asked = WAITS * TWO_MINUTES / waits.INTERVAL
    print(f"{figures.polls / asked:.1%} of the polls asked for")
    assert figures.polls >= SHARE * asked
    assert figures.sockets <= SOCKETS
    stage.polls.end(stage.cluster, stage.run_id, 5)
    proven(requests=figures.polls, lost=WAITS - figures.waits)
