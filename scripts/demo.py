"""``make demo``: runs the staged pipeline on a real Airflow over real sockets, and reports the result.

The report is built from the emulator's state, the tasks' XComs and the source's bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator
from scripts.airflow_home import ROOT, environment, migrate

SIZE = 4 * 1024 * 1024


def main() -> int:
    """Run the demo.

    :returns: 0 if every step succeeded.
    """
    began = time.monotonic()
    home = ROOT / ".demo" / "home"
    print("Preparing Airflow's database (once) and starting the emulator ...", flush=True)
    migrate(home)
    content = os.urandom(SIZE)
    expected = hashlib.sha256(content).hexdigest()
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="run-") as folder, Emulator(fetch_delay=1) as emulator:
        print("Running dags_examples/staged_etl.py ...", flush=True)
        shutil.copy(home / "airflow.db", folder)  # a database of its own: concurrent runs do not interfere
        url = emulator.serve(content, "export.bin")
        result = run_staged_etl(Path(folder), emulator, url, expected)
        state = emulator.state()
    problems = [*report(url, expected, result, state)]
    if problems:
        print(f"\nThe demo FAILED: {'; '.join(problems)}.\nAirflow's log: {home.parent / 'last.log'}")
        return 1
    print(f"\nDemo passed in {time.monotonic() - began:.0f} s. Airflow's log: .demo/last.log")
    return 0


def run_staged_etl(home: Path, emulator: Emulator, url: str, sha256: str) -> dict[str, Any]:
    """Run the example DAG in a separate process, which has an Airflow of its own.

    :returns: its states and XComs; empty if the run did not start.
    """
    result = home / "result.json"
    conf = json.dumps({"source_url": url, "expected_sha256": sha256, "staging_folder_id": "staging", "target_folder": str(home)})
    command = [sys.executable, "-m", "scripts.demo", conf, str(result)]
    env = environment(home, AIRFLOW_CONN_CLOUDSTORE_DEFAULT=emulator.connection)
    with (ROOT / ".demo" / "last.log").open("w") as log:
        subprocess.run(command, env=env, cwd=ROOT, stdout=log, stderr=log, check=False)
    return dict(json.loads(result.read_text())) if result.exists() else {"state": "not run", "tasks": {}, "values": {}}


def run_here(conf: str, result: str) -> int:
    """Run the example DAG in this process.

    :param conf: the run's configuration, as JSON.
    :param result: the file for its state and values, as JSON.
    """
    run = run_dag(runpy.run_path(str(ROOT / "dags_examples" / "staged_etl.py"))["dag"], json.loads(conf))
    Path(result).write_text(json.dumps({"state": run.state, "tasks": run.tasks, "values": run.values}, default=str))
    return 0


def report(url: str, expected: str, result: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """Print the result.

    :returns: the problems found.
    """
    values, effects = result["values"], state["effects"]
    file, loaded = values.get("download") or {}, values.get("load") or {}
    print("\n  task            state")
    for task_id, task_state in result["tasks"].items():
        print(f"  {task_id:<15} {task_state}")
    print(f"\n  uploaded        {url} ({SIZE:,} bytes, fetched by the service)")
    print(f"  downloaded      {file.get('bytes', 0):,} bytes, SHA-256 {file.get('sha256', '')[:16]}... (no link in any XCom)")
    print(f"  loaded          {loaded.get('bytes', 0):,} bytes, SHA-256 {loaded.get('sha256', '')[:16]}...")
    print(f"  source          {SIZE:,} bytes, SHA-256 {expected[:16]}...")
    print(f"  folder          {'not deleted' if 'staging' in state['folders'] else 'deleted, with its files and tokens'}")
    checks = {
        f"the run ended as {result['state']}": result["state"] == "success",
        "the upload was not queued exactly once": effects.get("upload") == 1,
        "the downloaded file differs from the source": (file.get("bytes"), file.get("sha256")) == (SIZE, expected),
        "the loaded bytes differ from the source": loaded == {"bytes": SIZE, "sha256": expected},
        "the folder was not deleted": effects.get("delete") == 1 and not (state["folders"] or state["files"] or state["tokens"]),
    }
    return [problem for problem, fine in checks.items() if not fine]


if __name__ == "__main__":
    sys.exit(run_here(*sys.argv[1:]) if sys.argv[1:] else main())
