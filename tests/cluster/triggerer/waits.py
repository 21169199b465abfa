"""Thousands of deferred waits in the triggerer of a ``scripts.cluster``, and what they cost.

A task that defers takes a second of CPU. So a worker defers the first wait of a DAG run, and the others are deferred by copying
the two rows that it left in Airflow's database: its trigger, and the state of its task instance. The scheduler has created the
task instances, the triggerer cannot tell the copies from the original, and a wait whose file comes resumes on a worker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.emulator.store import StoredFile
from scripts.cluster import Cluster

INTERVAL = 10.0
"""Seconds between two polls of a wait."""
_DAGS = Path(__file__).resolve().parent / "dags"
_POOL = "waits"
_WORKER_SLOTS = 2


@contextmanager
def cluster_for(home: Path, emulator: Emulator, waits: int) -> Iterator[Cluster]:
    """A cluster whose triggerer takes so many waits. The DAG's connection to the emulator is in Airflow's database.

    :param home: its ``AIRFLOW_HOME``.
    """
    with Cluster(
        home,
        _DAGS,
        AIRFLOW__CORE__MAX_MAP_LENGTH=str(waits),
        AIRFLOW__TRIGGERER__CAPACITY=str(waits + 100),
        WAITS=str(waits),
    ) as cluster:
        cluster.connect(emulator.url, emulator.access_token, "ours")
        yield cluster


def defer(cluster: Cluster, dag_id: str, waits: int) -> str:
    """Start a run of a DAG of mapped waits, with all of them deferred.

    :returns: the run's id.
    """
    _resize_pool(cluster, 1)
    run_id = cluster.trigger(dag_id)
    cluster.until("a worker has deferred a wait", lambda: _deferred(cluster, run_id), 180)
    _resize_pool(cluster, 0)
    active = "select 1 from task_instance where run_id = %s and pool = %s and state in ('queued', 'running')"
    cluster.until("no other wait is on a worker", lambda: not cluster.rows(active, run_id, _POOL))
    count = "select count(*) from task_instance where run_id = %s and pool = %s"
    cluster.until("every wait exists", lambda: cluster.rows(count, run_id, _POOL) == [(waits,)])
    _copy(cluster, run_id)
    assert _deferred(cluster, run_id) == waits
    return run_id


def _deferred(cluster: Cluster, run_id: str) -> int:
    sql = "select count(*) from task_instance where run_id = %s and state = 'deferred' and trigger_id is not null"
    return int(cluster.rows(sql, run_id)[0][0])


def _copy(cluster: Cluster, run_id: str) -> None:
    with closing(cluster.database()) as database, database, database.cursor() as cursor:
        cursor.execute(
            "select task_instance.id, map_index, trigger.id from task_instance join trigger on trigger.id = trigger_id"
            " where run_id = %s order by map_index limit 1",
            [run_id],
        )
        original, number, trigger = cursor.fetchone()
        others = "select id, map_index from task_instance where run_id = %s and pool = %s and trigger_id is null"
        cursor.execute(others, [run_id, _POOL])
        for instance, index in cursor.fetchall():
            cursor.execute(
                "insert into trigger (classpath, kwargs, created_date, queue)"
                " select classpath, replace(kwargs, %s, %s), now(), queue from trigger where id = %s returning id",
                [_file_id(number), _file_id(index), trigger],
            )
            (copied,) = cursor.fetchone()
            cursor.execute(
                "update task_instance set (state, next_method, next_kwargs, trigger_timeout, try_number, start_date, hostname,"
                " trigger_id) = (select state, next_method, next_kwargs, trigger_timeout, try_number, start_date, hostname, %s"
                " from task_instance where id = %s) where id = %s",
                [copied, original, instance],
            )


def _resize_pool(cluster: Cluster, slots: int) -> None:
    cluster.store("pools", {"name": _POOL, "slots": slots, "include_deferred": False})


def _file_id(index: int) -> str:
    return f"wait-{index:05}"  # as in the DAGs


class _Files(dict[str, StoredFile]):
    """An emulator's files, which count how often each is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.polls: Counter[str] = Counter()

    def get(self, file_id: str, default: Any = None) -> Any:
        self.polls[file_id] += 1
        return super().get(file_id, default)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the waits did in a while, and what that cost.

    :param all: seconds until all waits had polled; None if they did not.
    :param waits: how many waits have polled.
    :param polls: the polls that arrived.
    :param sockets: the most that were open at once.
    """

    all: float | None
    waits: int
    polls: int
    sockets: int


class Polls:
    """Counts the polls of each wait.

    :param emulator: the service, without files.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._files = _Files()
        emulator.call(lambda service: setattr(service.store, "files", self._files))

    def observe(self, cluster: Cluster, waits: int, seconds: float, *, until_all: bool = False) -> Figures:
        """Count for so many seconds.

        :param waits: how many waits there are.
        :param until_all: whether to stop as soon as each of them has polled.
        """
        self._emulator.call(lambda _: self._files.polls.clear())
        self._emulator.call(lambda service: service.store.connections.clear())
        began = time.monotonic()
        all_polled: list[float] = []

        def over() -> bool:
            now = time.monotonic() - began
            if not all_polled and self._emulator.call(lambda _: len(self._files.polls)) >= waits:
                all_polled.append(now)
            return now >= seconds or (until_all and bool(all_polled))

        cluster.until("the time is over", over, seconds + 60)
        polls = self._emulator.call(lambda _: Counter(self._files.polls))
        sockets = self._emulator.state()["connections"].get("peak", 0)
        return Figures(all_polled[0] if all_polled else None, len(polls), polls.total(), sockets)

    def end(self, cluster: Cluster, run_id: str, count: int) -> None:
        """Let the files of some waits come, and wait until their tasks have succeeded on a worker."""
        self._emulator.call(lambda service: [service.store.put_file(b"", _file_id(index), "f") for index in range(count)])
        _resize_pool(cluster, _WORKER_SLOTS)
        sql = "select count(*) from task_instance where run_id = %s and pool = %s and state = 'success'"
        cluster.until("the waits have succeeded", lambda: cluster.rows(sql, run_id, _POOL) == [(count,)], 180)
