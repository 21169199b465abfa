"""Compares thousands of waits in a real triggerer: ``FileAvailableSensor`` and the HTTP provider's ``HttpSensor``, both deferred.

PostgreSQL, with the connection in Airflow's database for both. They poll the emulator for files that do not come, one after the
other in the same run, each in an Airflow of its own. Figures of a shared machine vary; compare those of one run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts import waits
from scripts.waits import Figures, Polls

CONTENDERS = {"ours": "FileAvailableTrigger", "theirs": "HttpSensorTrigger"}


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waits", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=180.0, help="how long each contender is observed")
    parser.add_argument("--only", choices=CONTENDERS)
    given = parser.parse_args()
    contenders = [given.only] if given.only else list(CONTENDERS)
    results = {dag_id: measure(dag_id, given.waits, given.seconds) for dag_id in contenders}
    asked = given.waits * given.seconds / waits.INTERVAL
    print(f"{given.waits:,} waits, a poll every {waits.INTERVAL:g} s each, {given.seconds:g} s from the last trigger row\n")
    rows: dict[str, Callable[[Figures], float | None]] = {
        "seconds until half of the waits have polled": lambda one: one.half,
        "seconds until all of them have": lambda one: one.all,
        "share of the polls asked for (%)": lambda one: 100 * one.polls / asked,
        "CPU of the triggerer per poll (ms)": lambda one: 1000 * one.cpu / one.polls if one.polls else None,
        "most sockets open at once": lambda one: one.sockets,
    }
    print(f"{'':45}" + "".join(f"{CONTENDERS[dag_id]:>22}" for dag_id in results))
    for words, figure in rows.items():
        print(f"{words:45}" + "".join(f"{_cell(figure(one)):>22}" for one in results.values()))


def measure(dag_id: str, count: int, seconds: float) -> Figures:
    """Observe one contender in a fresh Airflow."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Emulator() as emulator,
        waits.cluster_for(Path(folder) / "home", emulator, count) as cluster,
    ):
        polls = Polls(emulator)
        waits.defer(cluster, dag_id, count)
        return polls.observe(cluster, count, seconds)


def _cell(figure: float | None) -> str:
    return "not reached" if figure is None else f"{figure:.1f}"


if __name__ == "__main__":
    main()
