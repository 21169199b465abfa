"""Compares one batch task with one mapped ``HttpOperator`` task per URL, on a real scheduler, in the same run.

It uses the LocalExecutor and SQLite. The time is that of the DAG run, from its start to its end in Airflow's database.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import datetime
from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import RealAirflow


def main() -> None:
    """Run both and print how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=200)
    given = parser.parse_args()
    took: dict[str, float] = {}
    dags = Path(__file__).resolve().parent / "dags"
    with tempfile.TemporaryDirectory() as folder, Emulator(access_token="token", fetch_delay=3600) as emulator:
        connections = {
            "cloudstore_default": json.loads(emulator.connection),
            "theirs": {"conn_type": "http", "host": emulator.url},
        }
        env = {"BENCH_URLS": str(given.urls), "BENCH_RECEIPTS": f"{folder}/receipts", "AIRFLOW__CORE__PARALLELISM": "16"}
        with RealAirflow(Path(folder) / "home", dags, **env) as airflow:
            airflow.store(connections, {})
            airflow.start_all()
            # The first run warms the executor's processes up, and is not counted.
            for dag_id in ("batched", "batched", "mapped"):
                before = len(emulator.state()["files"])
                run_id = airflow.trigger(dag_id)
                states = set(airflow.finish(run_id, 1800).values())
                assert states == {"success"}, states
                assert len(emulator.state()["files"]) - before == given.urls
                ((start, end),) = airflow.rows("select start_date, end_date from dag_run where run_id = ?", run_id)
                print(
                    f"{dag_id}: {(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():.2f} s", flush=True
                )
                took[dag_id] = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    print(
        f"{given.urls} URLs: {took['mapped']:.1f} s as mapped HttpOperator tasks, {took['batched']:.2f} s as one batch task: ",
        end="",
    )
    print(f"{took['mapped'] / took['batched']:.0f} times faster")


if __name__ == "__main__":
    main()
