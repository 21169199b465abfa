"""Runs a complete Airflow for tests: database, scheduler, triggerer, task processes, and logs on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from scripts.airflow_home import migrate

AIRFLOW_2 = version("apache-airflow").startswith("2.")


class RealAirflow:
    """An Airflow as a context manager; each component is a child process with its own session.

    :param home: its ``AIRFLOW_HOME``.
    :param dags: its DAG folder.
    :param env: additional environment variables.
    """

    def __init__(self, home: Path, dags: Path, **env: str) -> None:
        self.home, self.output = home, home / "output"
        self.output.mkdir(parents=True)
        self.port = _free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
        self.env = inherited | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__SECRET_KEY": "only-for-tests-" + "x" * 64,
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-tests-" + "y" * 64,
            # SQLite gives up after five seconds by default, which a busy machine needs for one write.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=120",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            # On a busy machine a task may start long before the API server responds: it waits instead of failing.
            "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "60",
            "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            # Airflow 2 rejects SQLite with the LocalExecutor because of contention; a handful of tasks is fine.
            "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **env,
        }

    def __enter__(self) -> Self:
        migrated = Path(sys.prefix) / "migrated"
        migrate(migrated)
        shutil.copy(migrated / "airflow.db", self.home)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # to all at once, for each takes seconds to end
        for name in list(self._processes):
            self.stop(name)

    def cli(self, *arguments: str) -> str:
        """Run an ``airflow`` command and return its output."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def start_all(self) -> None:
        """Start all components of this Airflow version."""
        names = ["scheduler", "triggerer"] if AIRFLOW_2 else ["api-server", "scheduler", "dag-processor", "triggerer"]
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one component, with its output in a file."""
        arguments = [name, "--skip-serve-logs"] if name in ("scheduler", "triggerer") else [name]
        with (self.output / f"{name}.txt").open("ab") as sink:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *arguments], env=self.env, stdout=sink, stderr=sink, start_new_session=True
            )

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a component and every process of its session."""
        process = self._processes.pop(name)
        for one in (number, signal.SIGKILL):
            try:
                os.killpg(process.pid, one)
                process.wait(timeout=20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

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
        """Trigger a run as soon as Airflow has parsed the DAG.

        :returns: the run id.
        """
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
        """Wait until a run is finished.

        :returns: the state of each task instance, by task id and map index.
        """
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

    def failures(self, run_id: str, count: int = 3) -> str:
        """Return what the scheduler and the task logs report about the first failed tasks of a run."""
        failed = [task for task, state in self.states(run_id).items() if state == "failed"]
        report = [f"failed in {run_id}: {sorted(failed)}"]
        for task_id, index in failed[:count]:
            file_is_of_task = re.compile(rf"task_id={task_id}\b" + (rf".*map_index={index}\b" if index >= 0 else ""))
            line_is_of_task = re.compile(rf"rror.*\b{task_id}\b" + (rf".*\b{index}\b" if index >= 0 else ""))
            scheduler = (self.output / "scheduler.txt").read_text(errors="replace").splitlines()
            report += [line[:1000] for line in scheduler if line_is_of_task.search(line)][-10:]
            logs = [(file, text) for file, text in self.logs() if run_id in str(file) and file_is_of_task.search(str(file))]
            report += [f"--- {file}\n{text[-3000:]}" for file, text in logs]
        return "\n".join(report)

    def until(self, description: str, condition: Any, seconds: float = 120) -> Any:
        """Wait until a condition holds, and return its value."""
        ends_at = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < ends_at, f"not within {seconds} s: {description}\n{self._tails()}"
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} exited\n{self._tails()}"
            time.sleep(0.25)
        return value

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

    def _tails(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in self.output.iterdir())


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file, file.read_text(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
