"""``make up``: Airflow's own UI with the example DAGs, the connection and the emulator, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.airflow_home import ROOT, environment, migrate
from scripts.cluster import Cluster, missing
from scripts.processes import free_port
from scripts.source_server import serving


def main(engine: str = "standalone") -> int:
    """Run Airflow beside the emulator.

    :param engine: ``celery`` for a distributed Airflow.
    :returns: 0 after Ctrl-C, 1 if Airflow ended by itself.
    """
    if engine == "celery":
        return distributed()
    home = ROOT / ".up" / "home"
    print("Preparing Airflow's database (once) ...", flush=True)
    migrate(home)
    port = free_port(8080)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Emulator() as emulator, serving(os.urandom(4 * 1024 * 1024)) as source, (home.parent / "airflow.log").open("w") as log:
        env = environment(
            home,
            AIRFLOW_CONN_CLOUDSTORE_DEFAULT=emulator.connection,
            AIRFLOW__API__PORT=str(port),
            AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"http://127.0.0.1:{port}/execution/",
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
        )
        command = [sys.executable, "-m", "airflow", "standalone"]
        # A session of its own: Ctrl-C reaches this program alone, which then stops Airflow and all that Airflow started.
        airflow = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            print("Starting Airflow (half a minute) ...", flush=True)
            wait_for(f"http://127.0.0.1:{port}/api/v2/version", airflow)
            print(f"\nAirflow   http://127.0.0.1:{port}   (no login; Ctrl-C stops everything)")
            print(f"emulator  {emulator.url}   (its state: {emulator.url}/_emulator/state)")
            print(f"try       trigger staged_etl with source_url = {source}", flush=True)
            airflow.wait()
            print("Airflow ended by itself; what it logged is in .up/airflow.log", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nStopping ...", flush=True)
            return 0
        finally:
            stop(airflow)


def distributed() -> int:
    """Run a distributed Airflow beside the emulator.

    :returns: 0 after Ctrl-C, 1 if there can be none here, or a part of it ended by itself.
    """
    if reason := missing():
        print(f"No distributed Airflow can be run here: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (ROOT / ".up").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="celery-", dir=ROOT / ".up") as folder, Emulator() as emulator:
        env = {"AIRFLOW_CONN_CLOUDSTORE_DEFAULT": emulator.connection}
        try:
            print("Starting PostgreSQL, Redis, Airflow and two Celery workers (half a minute) ...", flush=True)
            with (
                serving(os.urandom(4 * 1024 * 1024)) as source,
                Cluster(Path(folder) / "home", ROOT / "dags_examples", free_port(8080), **env) as cluster,
            ):
                print(f"\nAirflow   {cluster.url}   (no login; Ctrl-C stops everything)")
                print(f"emulator  {emulator.url}   (its state: {emulator.url}/_emulator/state)")
                print(f"output    {cluster.output}")
                for program in cluster.programs.values():
                    print(f"          {program.name:<14} process {program.pids[0]}")
                print(f"try       trigger staged_etl with source_url = {source}", flush=True)
                while not (ended := [program for program in cluster.programs.values() if program.ended_by_itself]):
                    time.sleep(1)
                print("\n".join(f"{program.name} ended by itself\n{program.tail()}" for program in ended), file=sys.stderr)
                return 1
        except KeyboardInterrupt:
            print("\nStopped.", flush=True)
            return 0


def wait_for(url: str, airflow: subprocess.Popen[bytes]) -> None:
    """Wait until Airflow answers.

    :raises RuntimeError: if it ended, or took longer than three minutes.
    """
    ends_at = time.monotonic() + 180
    while airflow.poll() is None and time.monotonic() < ends_at:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError("Airflow did not come up; what it logged is in .up/airflow.log")


def stop(airflow: subprocess.Popen[bytes]) -> None:
    """End Airflow and the processes that it started, which share its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(airflow.pid, number)
            airflow.wait(timeout=15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
