"""``make up``: runs Airflow's UI with the example DAGs, the connection and the emulator until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.airflow_home import ROOT, airflow, environment, migrate, serving
from scripts.cluster import responds
from scripts.processes import Program, end_at_signals, free_port

FOLDER = ROOT / ".up"
# One click runs an example; the connection form has its Test button.
WELCOMING = {
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
}
HINTS = """examples    example_staged_etl and others are in Airflow's list of DAGs; each runs with a click on its Trigger button
DAG files   are read from dags_examples/: a new one is there within seconds, and one with a schedule runs at once"""


def main() -> int:
    """Run Airflow and the emulator; the exit status is 0 after Ctrl-C, 1 if Airflow ended on its own."""
    end_at_signals()
    try:
        with Emulator() as emulator, standalone(emulator) as program:
            print(HINTS, flush=True)
            while not program.ended_by_itself:
                time.sleep(1)
            print(f"Airflow ended on its own; see {program.log}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        print("\nStopped.", flush=True)
        return 0


@contextmanager
def standalone(emulator: Emulator) -> Iterator[Program]:
    """Airflow in one program, with SQLite."""
    print("Preparing Airflow's database (once) ...", flush=True)
    home = FOLDER / "home"
    migrate(home)
    port = free_port(8080)
    env = environment(
        home,
        **example_inputs(emulator, FOLDER),
        **WELCOMING,
        **serving(port),
        # The scheduler may start a task long before the API server responds: the task waits instead of failing.
        AIRFLOW__WORKERS__EXECUTION_API_RETRIES="60",
        AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX="2",
    )
    store_connection(home, env, emulator)
    print("Starting Airflow (half a minute) ...", flush=True)
    log = FOLDER / "airflow.log"
    log.unlink(missing_ok=True)
    url = f"http://127.0.0.1:{port}"
    with Program("Airflow", [sys.executable, "-m", "airflow", "standalone"], log, env=env) as program:
        program.until("it responds", lambda: responds(f"{url}/api/v2/version"), 300)
        print(f"\nAirflow     {url}   (no login; Ctrl-C stops everything)")
        print(f"emulator    {emulator.url}   (its state: /_emulator/state; any source: https://example.com/NAME)")
        # The token, too: it guards nothing.
        print(f"connection  cloudstore_default is set: the emulator's host and port, password {emulator.access_token}")
        print(f"log         {log}")
        yield program


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """``make up`` in a process of its own: the addresses that it prints, by their names."""
    command = [sys.executable, "-m", "scripts.up"]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    printed: list[str] = []
    for line in started.stdout:
        printed.append(line)
        if line.startswith("DAG files"):
            break
    else:
        raise RuntimeError(f"make up ended with status {started.wait()}: {''.join(printed)}")
    try:
        yield dict(re.findall(r"^(\w+) +(http\S+)", "".join(printed), re.MULTILINE))
    finally:
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=60) == 0


def example_inputs(emulator: Emulator, folder: Path) -> dict[str, str]:
    """The default parameters of the example DAGs, as environment variables; the emulator gets the files that they need."""
    urls = [emulator.serve(f"row {number}\n".encode(), f"row-{number}.csv") for number in range(100)]
    manifest = folder / "urls.csv"
    manifest.write_text("\n".join(["id,url", *(f"{number},{url}" for number, url in enumerate(urls))]))
    return {
        "EXAMPLE_FOLDER_IDS": " ".join(emulator.make_folder(folder_id) for folder_id in ("tmp-1", "tmp-2")),
        "EXAMPLE_SOURCE_URL": emulator.serve(os.urandom(4 * 1024 * 1024), "export.csv"),
        "EXAMPLE_FILE_ID": emulator.put_file(b"a file to share", "f123", "shared"),
        "EXAMPLE_MANIFEST": str(manifest),
        "EXAMPLE_RECEIPTS": str(folder / "receipts"),
    }


def store_connection(home: Path, env: Mapping[str, str], emulator: Emulator) -> None:
    """Store the connection in the database, because the UI does not list those in the environment."""
    file = home / "connections.json"
    port = int(emulator.url.rpartition(":")[2])  # for an empty field, Airflow 3.3's Test button sends 0
    connection = {**json.loads(emulator.connection), "port": port}
    file.write_text(json.dumps({"cloudstore_default": connection}))
    airflow("connections", "import", "--overwrite", str(file), env=env)


if __name__ == "__main__":
    sys.exit(main())
