"""Runs a complete Airflow for tests: database, scheduler, triggerer, task processes, and logs on disk."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from scripts.airflow_home import airflow, environment, migrate, serving
from scripts.processes import Program, free_port, until

AIRFLOW_2 = version("apache-airflow").startswith("2.")


class RealAirflow:
    """An Airflow as a context manager; each component is a child process."""

    def __init__(self, home: Path, dags: Path, **env: str) -> None:
        self.home, self.output = home, home / "output"
        self.output.mkdir(parents=True)
        self.port = free_port()
        self._programs: dict[str, Program] = {}
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": "only-for-tests-" + "x" * 64,
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-tests-" + "y" * 64,
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(b"z" * 32).decode(),
            # SQLite gives up after five seconds by default, which a busy machine needs for one write.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=120",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            # On a busy machine a task may start long before the API server responds: it waits instead of failing.
            "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "60",
            "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
            # Airflow 2 rejects SQLite with the LocalExecutor because of contention; a handful of tasks is fine.
            "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        self.env = environment(home, **serving(self.port) | settings | env)

    def __enter__(self) -> Self:
        migrated = Path(sys.prefix) / "migrated"
        migrate(migrated)
        shutil.copy(migrated / "airflow.db", self.home)
        (self.home / "airflow.cfg").touch()  # else each component would write it
        (self.home / "config").mkdir()
        (self.home / "config" / "airflow_local_settings.py").symlink_to(Path(__file__).with_name("preload.py"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for name in list(self._programs):
            self.kill(name)

    def cli(self, *arguments: str) -> str:
        """Run an ``airflow`` command and return its output."""
        return airflow(*arguments, env=self.env)

    def start_all(self) -> None:
        """Start all components of this Airflow version."""
        names = ["scheduler", "triggerer"] if AIRFLOW_2 else ["api-server", "scheduler", "dag-processor", "triggerer"]
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one component, with its output in a file."""
        arguments = [name, "--skip-serve-logs"] if name in ("scheduler", "triggerer") else [name]
        command = [sys.executable, "-m", "airflow", *arguments]
        self._programs[name] = Program(name, command, self.output / f"{name}.txt", env=self.env)
        self._programs[name].start()

    def kill(self, name: str) -> None:
        """Kill a component and everything that it started."""
        self._programs.pop(name).kill()

    def store(self, connections: Mapping[str, Mapping[str, Any]], variables: Mapping[str, str]) -> None:
        """Import connections and variables into the database, where Airflow encrypts them."""
        for kind, values in (("connections", connections), ("variables", variables)):
            if not values:
                continue
            file = self.home / f"{kind}.json"
            file.write_text(json.dumps(values))
            self.cli(kind, "import", str(file))
            file.unlink()

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Trigger a run as soon as Airflow has parsed the DAG, and return its id."""
        self.unpause(dag_id)
        run_id = f"run_{time.time_ns()}"
        self.cli("dags", "trigger", dag_id, "--run-id", run_id, "--conf", json.dumps(conf))
        return run_id

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG as soon as Airflow has parsed it."""
        self.until(f"DAG {dag_id} is parsed", lambda: self._has_parsed(dag_id))

        def unpaused() -> int:  # as the command does, without its seconds of imports
            with self._database("rw") as database, database:
                return database.execute("update dag set is_paused = 0 where dag_id = ?", [dag_id]).rowcount

        self.until(f"DAG {dag_id} is unpaused", unpaused)  # Airflow 2 serializes a DAG before it lists it

    def finish(self, run_id: str, seconds: float = 300) -> dict[tuple[str, int], str]:
        """Wait until a run is finished, and return the state of each task instance, by task id and map index."""
        finished = "select state from dag_run where run_id = ? and state in ('success', 'failed')"
        self.until(f"{run_id} is finished", lambda: self.rows(finished, run_id), seconds)
        states = self.states(run_id)
        if "failed" in states.values():
            print(self.failures(run_id))  # pytest shows it where the test fails
        return states

    def states(self, run_id: str) -> dict[tuple[str, int], str]:
        """Return the current state of each task instance, by task id and map index."""
        rows = self.rows("select task_id, map_index, state from task_instance where run_id = ?", run_id)
        return {(task_id, map_index): state for task_id, map_index, state in rows}

    def failures(self, run_id: str) -> str:
        """Return the last lines of the logs of a run's failed tasks."""
        failed = {f"task_id={task_id}" for (task_id, _), state in self.states(run_id).items() if state == "failed"}
        logs = [(file, text) for file, text in self.logs() if run_id in str(file) and failed & {*file.parts}]
        return "\n".join(f"--- {file}\n{text[-3000:]}" for file, text in logs)

    def until(self, what: str, true: Any, seconds: float = 120) -> Any:
        """Wait until a condition is true, and return its value; fail if a component ends."""
        return until(what, true, seconds, self._programs.values())

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Query the metadata database."""
        with self._database() as database:
            return database.execute(query, values).fetchall()

    def tables(self) -> Iterator[tuple[str, Any]]:
        """Yield every row of every table: the table name, and the row as a dict."""
        with self._database() as database:
            database.row_factory = sqlite3.Row
            names = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
            for name in names:
                for row in database.execute(f'select * from "{name}"'):
                    yield name, dict(row)

    def logs(self) -> Iterator[tuple[Path, str]]:
        """Yield every log file with its content."""
        return _texts(self.home / "logs")

    def consoles(self) -> Iterator[tuple[Path, str]]:
        """Yield the output file of each component with its content."""
        return _texts(self.output)

    def _has_parsed(self, dag_id: str) -> bool:
        broken = self.rows("select stacktrace from import_error")
        assert not broken, broken[0][0]
        return bool(self.rows("select 1 from serialized_dag where dag_id = ?", dag_id))

    @contextmanager
    def _database(self, mode: str = "ro") -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(f"file:{self.home / 'airflow.db'}?mode={mode}", uri=True, timeout=30)
        try:
            yield database
        finally:
            database.close()


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file, file.read_text(errors="replace")
