"""Thousands of waits in one triggerer, with the connection in Airflow's database, as most people have it.

A task that defers takes a second of CPU. So a worker defers the first wait of a DAG run, and the others are deferred by copying
the two rows that it left in Airflow's database: its trigger, and the state of its task instance. The scheduler has created the
task instances, the triggerer cannot tell the copies from the original, and a wait whose file comes resumes on a worker.

Slow: ``make test-triggerer`` runs it.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.emulator.store import StoredFile
from scripts.cluster import Cluster, missing

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
WAITS = 2000
SOCKETS = 32
INTERVAL, SECONDS = 10.0, 30.0
"""Between two polls of a wait, with a fifth of it as jitter; and for how long the polls are counted."""
SHARE = 0.95
"""Of the polls that the waits should make, those that they must make."""
SLOTS = 2


class CountingFiles(dict[str, StoredFile]):
    """An emulator's files, of which none has come; they count how often each is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.polls: Counter[str] = Counter()

    def get(self, file_id: str, default: Any = None) -> Any:
        self.polls[file_id] += 1
        return super().get(file_id, default)


def resize_pool(cluster: Cluster, slots: int) -> None:
    cluster.store("pools", {"name": "waits", "slots": slots, "include_deferred": False})


def deferred(cluster: Cluster, run_id: str) -> int:
    sql = "select count(*) from task_instance where run_id = %s and state = 'deferred' and trigger_id is not null"
    return int(cluster.rows(sql, run_id)[0][0])


def start_deferred(cluster: Cluster) -> str:
    """Start a run with all of its waits deferred, and return its id."""
    resize_pool(cluster, 1)
    run_id = cluster.trigger("ours")
    cluster.until("a worker has deferred a wait", lambda: deferred(cluster, run_id), 180)
    resize_pool(cluster, 0)
    active = "select 1 from task_instance where run_id = %s and pool = 'waits' and state in ('queued', 'running')"
    cluster.until("no other wait is on a worker", lambda: not cluster.rows(active, run_id))
    count = "select count(*) from task_instance where run_id = %s and pool = 'waits'"
    cluster.until("every wait exists", lambda: cluster.rows(count, run_id) == [(WAITS,)])
    copy_the_first(cluster, run_id)
    assert deferred(cluster, run_id) == WAITS
    return run_id


def copy_the_first(cluster: Cluster, run_id: str) -> None:
    with closing(cluster.database()) as database, database, database.cursor() as cursor:
        cursor.execute(
            "select task_instance.id, map_index, trigger.id from task_instance join trigger on trigger.id = trigger_id"
            " where run_id = %s order by map_index limit 1",
            [run_id],
        )
        original, number, trigger = cursor.fetchone()
        others = "select id, map_index from task_instance where run_id = %s and pool = 'waits' and trigger_id is null"
        cursor.execute(others, [run_id])
        for instance, index in cursor.fetchall():
            cursor.execute(
                "insert into trigger (classpath, kwargs, created_date, queue)"
                " select classpath, replace(kwargs, %s, %s), now(), queue from trigger where id = %s returning id",
                [file_id(number), file_id(index), trigger],
            )
            (copied,) = cursor.fetchone()
            cursor.execute(
                "update task_instance set (state, next_method, next_kwargs, trigger_timeout, try_number, start_date, hostname,"
                " trigger_id) = (select state, next_method, next_kwargs, trigger_timeout, try_number, start_date, hostname, %s"
                " from task_instance where id = %s) where id = %s",
                [copied, original, instance],
            )


def file_id(index: int) -> str:
    return f"wait-{index:05}"  # as in the DAG


def test_two_thousand_waits_keep_their_interval_over_few_sockets_also_after_a_restart(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"no cluster can be run here: {reason}")
    with (
        Emulator() as emulator,
        Cluster(
            tmp_path / "home",
            DAGS,
            AIRFLOW__CORE__MAX_MAP_LENGTH=str(WAITS),
            AIRFLOW__TRIGGERER__CAPACITY=str(WAITS + 100),
            WAITS=str(WAITS),
        ) as cluster,
    ):
        cluster.connect(emulator.url, emulator.access_token, "ours")
        files = CountingFiles()
        emulator.call(lambda service: setattr(service.store, "files", files))

        def until_all_have_polled() -> float:
            began = time.monotonic()
            emulator.call(lambda _: files.polls.clear())
            cluster.until("every wait has polled", lambda: emulator.call(lambda _: len(files.polls)) == WAITS, 180)
            return time.monotonic() - began

        process, port = psutil.Process(), int(emulator.url.rpartition(":")[2])
        run_id = start_deferred(cluster)
        first = until_all_have_polled()
        cluster["triggerer"].kill()
        cluster.start("triggerer")
        again = until_all_have_polled()
        ends = time.monotonic() + SECONDS
        emulator.call(lambda _: files.polls.clear())
        sockets = []

        def is_over() -> bool:
            sockets.append(sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in process.net_connections("tcp")))
            return time.monotonic() >= ends

        cluster.until("the time is over", is_over, 2 * SECONDS)
        polls = emulator.call(lambda _: Counter(files.polls))
        share = polls.total() / (WAITS * SECONDS / INTERVAL)
        print(f"all polled after {first:.0f} s, after a restart within {again:.0f} s; {share:.1%} of the polls asked for")
        assert share >= SHARE
        assert len(polls) == WAITS
        assert min(polls.values()) >= 2
        assert 0 < max(sockets) <= SOCKETS
        emulator.call(lambda service: [service.store.put_file(b"", file_id(index), "f") for index in range(SLOTS)])
        resize_pool(cluster, SLOTS)
        succeeded = "select count(*) from task_instance where run_id = %s and pool = 'waits' and state = 'success'"
        cluster.until("the waits have succeeded", lambda: cluster.rows(succeeded, run_id) == [(SLOTS,)], 180)
