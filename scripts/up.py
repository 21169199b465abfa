"""``make up``: Airflow's own UI with the example DAGs, the connection and the emulator, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.airflow_home import ROOT, environment, migrate


def main() -> int:
    """Run Airflow standalone beside the emulator.

    :returns: 0 after Ctrl-C, 1 if Airflow ended by itself.
    """
    home = ROOT / ".up" / "home"
    print("Preparing Airflow's database (once) ...", flush=True)
    migrate(home)
    port = free_port(8080)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Emulator() as emulator, (home.parent / "airflow.log").open("w") as log:
        env = environment(
            home,
            **example_inputs(emulator, home.parent),
            AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="False",
            AIRFLOW__CORE__TEST_CONNECTION="Enabled",
            AIRFLOW__API__PORT=str(port),
            AIRFLOW__CORE__EXECUTION_API_SERVER_URL=f"http://127.0.0.1:{port}/execution/",
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
        )
        store_connection(home, env, emulator)
        command = [sys.executable, "-m", "airflow", "standalone"]
        # A session of its own: Ctrl-C reaches this program alone, which then stops Airflow and all that Airflow started.
        airflow = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            print("Starting Airflow (half a minute) ...", flush=True)
            wait_for(f"http://127.0.0.1:{port}/api/v2/version", airflow)
            print(f"\nAirflow   http://127.0.0.1:{port}   (no login; Ctrl-C stops everything)")
            print(f"emulator  {emulator.url}   (its state: {emulator.url}/_emulator/state)")
            print("try       open staged_etl, click Trigger, and Trigger again: it runs with what the form holds", flush=True)
            airflow.wait()
            print("Airflow ended by itself; what it logged is in .up/airflow.log", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nStopping ...", flush=True)
            return 0
        finally:
            stop(airflow)


def example_inputs(emulator: Emulator, folder: Path) -> dict[str, str]:
    """What the example DAGs work on: the defaults in their forms, as environment variables.

    :param emulator: the service; what the examples look for is put into it.
    :param folder: where the manifest and its receipts are.
    """
    urls = [emulator.serve(f"row {number}\n".encode(), f"row-{number}.csv") for number in range(100)]
    manifest = folder / "urls.csv"
    manifest.write_text("\n".join(["id,url", *(f"{number},{url}" for number, url in enumerate(urls))]))
    return {
        "EXAMPLE_SOURCE_URL": emulator.serve(os.urandom(4 * 1024 * 1024), "export.csv"),
        "EXAMPLE_FILE_ID": emulator.put_file(b"a file to share", "f123", "shared"),
        "EXAMPLE_MANIFEST": str(manifest),
        "EXAMPLE_RECEIPTS": str(folder / "receipts"),
    }


def store_connection(home: Path, env: dict[str, str], emulator: Emulator) -> None:
    """Put the connection into the database, where the UI lists it; one in the environment is not listed.

    :param home: the ``AIRFLOW_HOME``.
    :param env: Airflow's environment.
    :param emulator: where the connection leads.
    """
    file = home / "connections.json"
    file.write_text(json.dumps({"cloudstore_default": json.loads(emulator.connection)}))
    command = [sys.executable, "-m", "airflow", "connections", "import", "--overwrite", str(file)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The connection was not stored: {done.stderr[-1000:]}")


def free_port(wanted: int) -> int:
    """``wanted`` if nobody listens there, else a port that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")


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
    sys.exit(main())
