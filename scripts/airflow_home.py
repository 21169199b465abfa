"""Provides an isolated Airflow home for scripts: SQLite, the example DAGs, and no settings of other Airflows."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE_NAME = "CLUSTER_NODE"
"""The environment variable with the host name of a node of ``scripts.cluster``."""


def environment(home: Path, **extra: str) -> dict[str, str]:
    """The environment of an Airflow whose home is ``home``, without the caller's own ``AIRFLOW*`` variables."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags_examples"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # SQLite waits five seconds for its lock by default: too little on a busy machine. Far more only delays others.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=30",
        # This virtual environment's bin folder first: Airflow starts itself by name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
    }
    return {**inherited, **own, **extra}


def serving(port: int) -> dict[str, str]:
    """The settings of an Airflow whose API server listens on a port of loopback, without a login; new DAGs appear at once."""
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    }


def node_name() -> str:
    """The host name that Airflow displays for a task: its worker's name, since all workers share one machine.

    Every process of Airflow imports this file for it: it must stay cheap to import.
    """
    return os.environ.get(NODE_NAME, "localhost")


def airflow(*arguments: str, env: Mapping[str, str]) -> str:
    """Run an ``airflow`` command and return its output; if it fails, the error has it."""
    command = [sys.executable, "-m", "airflow", *arguments]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"airflow {' '.join(arguments)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def migrate(home: Path) -> None:
    """Create the database in ``home``, unless it exists; concurrent callers wait for each other."""
    import sqlite3

    home.mkdir(parents=True, exist_ok=True)
    with (home / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = home / "migrated"
        stamp = str((Path(sys.prefix) / "stamp").stat().st_mtime_ns) if (Path(sys.prefix) / "stamp").exists() else ""
        if done.exists() and done.read_text() == stamp:
            return
        (home / "airflow.db").unlink(missing_ok=True)
        airflow("db", "migrate", env=environment(home))
        database = sqlite3.connect(home / "airflow.db")
        database.execute("PRAGMA journal_mode=WAL")  # stays with the file: readers do not block the one who writes
        database.close()
        done.write_text(stamp)
