"""``make demo``: runs the staged pipeline on a real Airflow over real sockets, and reports the emulator's state afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.airflow_home import ROOT, environment, migrate

SIZE = 4 * 1024 * 1024


def main() -> int:
    """Run the demo, and return its exit status."""
    began = time.monotonic()
    home = ROOT / ".demo" / "home"
    print("Preparing Airflow's database (once) and starting the emulator ...", flush=True)
    migrate(home)
    content = os.urandom(SIZE)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="run-") as folder, Emulator(fetch_delay=1) as emulator:
        print("Running dags_examples/staged_etl.py ...", flush=True)
        shutil.copy(home / "airflow.db", folder)  # a database of its own: concurrent runs do not interfere
        url = emulator.serve(content, "export.bin")
        succeeded = run_staged_etl(Path(folder), emulator, url, hashlib.sha256(content).hexdigest())
        state = emulator.state()
    problems = [*report(url, state)] + ([] if succeeded else ["the run failed"])
    if problems:
        print(f"\nThe demo FAILED: {'; '.join(problems)}.\nAirflow's log: {home.parent / 'last.log'}")
        return 1
    print(f"\nDemo passed in {time.monotonic() - began:.0f} s. Airflow's log: .demo/last.log")
    return 0


def run_staged_etl(home: Path, emulator: Emulator, url: str, sha256: str) -> bool:
    """Run the example DAG on an Airflow of its own, and return whether it succeeded."""
    conf = json.dumps({"source_url": url, "expected_sha256": sha256, "target_folder": str(home)})
    command = [sys.executable, "-m", "airflow", "dags", "test", "example_staged_etl", "--conf", conf]
    env = environment(home, AIRFLOW_CONN_CLOUDSTORE_DEFAULT=emulator.connection)
    with (ROOT / ".demo" / "last.log").open("w") as log:
        return subprocess.run(command, env=env, stdout=log, stderr=log, check=False).returncode == 0


def report(url: str, state: dict[str, Any]) -> list[str]:
    """Print what happened to the emulator, and return the problems found."""
    requests, effects = state["requests"], state["effects"]
    print(f"\n  uploaded     {url} ({SIZE:,} bytes, fetched by the service)")
    print(f"  waited       asked {requests.get('link', 0)} times for a download link; the last time, the file was there")
    print(f"  downloaded   {requests.get('download', 0)} request, verified with the source's SHA-256; no link is in any XCom")
    print(f"  folder       {'not deleted' if state['files'] else 'created, and deleted with its file and tokens'}")
    checks = {
        "the upload was not queued exactly once": effects.get("upload") == 1,
        "the file was not downloaded": requests.get("download", 0) > 0,
        "the folder was not deleted": effects.get("delete") == 1 and not (state["files"] or state["tokens"]),
        "another folder was deleted, or one is left": state["folders"] == ["staging"],
    }
    return [problem for problem, fine in checks.items() if not fine]


if __name__ == "__main__":
    sys.exit(main())
