"""A batch behind front ends that reload: nothing arrives twice or is lost unnoticed.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.support import context, eventually
from tests.wire.neighbours.conftest import Run
from tests.wire.neighbours.servers import Neighbour, haproxy, nginx

pytestmark = pytest.mark.slow

CONCURRENCY = 16
COUNT, RELOADS = 1_000, 5


def batch(emulator: Emulator, receipts: Path) -> list[int]:
    """Run one try of a batch, check that nothing has arrived twice or is lost, and return the lines that are unknown."""
    urls = [f"https://source.example/{number}" for number in range(1, COUNT + 1)]
    operator = RemoteUrlBatchUploadOperator(task_id="t", urls=urls, receipts=str(receipts), max_concurrency=CONCURRENCY)
    with suppress(exceptions.BatchFailedError):  # for unknown outcomes only
        operator.execute(context(max_tries=2))
    lines: dict[str, list[int]] = {"queued": [], "unknown": []}
    for part in receipts.glob("part-*"):
        for receipt in map(json.loads, part.read_text().splitlines()):
            lines[receipt["status"]].append(receipt["line"])
    arrived = Counter(int(stored["source"].rpartition("/")[2]) for stored in emulator.state()["files"])
    unknown = sorted(lines["unknown"])
    print(f"{arrived.total()} arrived; {len(unknown)} unknown, of which {len(arrived.keys() & unknown)} arrived")
    assert sorted(lines["queued"] + unknown) == [*range(1, COUNT + 1)]
    assert arrived.total() == len(arrived)
    assert arrived.keys() >= {*lines["queued"]}
    return unknown


def reload_often(front_end: Neighbour, emulator: Emulator) -> None:
    """Reload a front end five times, each time a tenth of the uploads has arrived."""
    due = [COUNT // 10 * number for number in range(1, RELOADS + 1)]
    while due:
        eventually(lambda: emulator.state()["requests"].get("upload", 0) >= due[0], 60)
        front_end.reload()
        due.pop(0)


@pytest.mark.parametrize("program", ["nginx", "haproxy"])
def test_a_batch_across_reloads(program: str, run_front_end: Run, emulator: Emulator, tmp_path: Path) -> None:
    """At most what is in transit over kept connections at a reload is unknown."""
    service = emulator.url.removeprefix("http://")
    running = run_front_end(nginx(f"location / {{ proxy_pass {emulator.url}; }}") if program == "nginx" else haproxy(service))
    with ThreadPoolExecutor(1) as thread:
        reloads = thread.submit(reload_often, running, emulator)
        unknown = batch(emulator, tmp_path)
        reloads.result()
    assert len(unknown) <= RELOADS * CONCURRENCY
