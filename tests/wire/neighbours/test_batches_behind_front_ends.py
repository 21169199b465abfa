"""A batch behind front ends that reload, limit the rate and close connections: nothing arrives twice or is lost unnoticed.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.guarantees import Proof, guarantee
from tests.support import eventually
from tests.wire.neighbours.servers import HAPROXY, LOCATION, FrontEnd, Haproxy, Nginx, limit, server

pytestmark = pytest.mark.slow

CONCURRENCY = 16
RELOADS = 5
BURST = "burst=20 nodelay"


@pytest.fixture
def front_end(emulator: Emulator, run_neighbour: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], FrontEnd]:
    """Run nginx, or haproxy, with a configuration; the connection leads there."""

    def run(config: str) -> FrontEnd:
        program: type[FrontEnd] = Haproxy if config.startswith("frontend") else Nginx
        config = config.replace("{service}", emulator.url).replace("{address}", emulator.url[len("http://") :])
        running: FrontEnd = run_neighbour(lambda: program(config))
        connection = json.loads(emulator.connection) | {"host": f"http://127.0.0.1:{running.port}"}
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
        return running

    return run


def url_of(number: int) -> str:
    return f"https://source.example/{number}?sig=hunter{number}"


def number_of(url: str) -> int:
    return int(urlsplit(url).path.strip("/"))


@dataclass(frozen=True)
class Batch:
    """A batch that has ended.

    :param outcomes: the URLs, by the status in their receipts.
    :param arrived: how often each URL has arrived.
    :param requests: how many requests have.
    """

    outcomes: dict[str, set[str]]
    arrived: Counter[str]
    requests: int

    def hand_in(self, proven: Proof) -> None:
        """What is reported as queued has arrived, and nothing has arrived twice."""
        unknown = self.outcomes["unknown"]
        print(f"{len(unknown)} unknown, of which {len(unknown & self.arrived.keys())} arrived")
        proven(
            requests=self.requests,
            effects=self.arrived.total(),
            twice=self.arrived.total() - len(self.arrived),
            at_most=0,
            lost=len(self.outcomes["queued"] - self.arrived.keys()),
        )


@pytest.fixture
def batch(emulator: Emulator, tmp_path: Path) -> Callable[..., Batch]:
    """Run one try of a batch of so many URLs; it fails only for unknown outcomes."""

    def run(count: int, **options: Any) -> Batch:
        urls = [url_of(number) for number in range(count)]
        operator = RemoteUrlBatchUploadOperator(
            task_id="t", urls=urls, receipts=str(tmp_path / "receipts"), max_concurrency=CONCURRENCY, **options
        )
        ti = SimpleNamespace(
            dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1, max_tries=0, xcom_push=lambda **_: None
        )
        failed = ""
        try:
            operator.execute({"ti": ti})  # type: ignore[typeddict-item]
        except exceptions.BatchFailedError as error:
            failed = str(error)
        assert emulator.access_token not in failed
        assert "hunter" not in failed
        outcomes: dict[str, set[str]] = {"queued": set(), "unknown": set()}
        for part in (tmp_path / "receipts").glob("part-*"):
            for receipt in map(json.loads, part.read_text().splitlines()):
                outcomes[receipt["status"]].add(urls[receipt["line"] - 1])
        assert sorted([*outcomes["queued"], *outcomes["unknown"]]) == sorted(urls)
        assert bool(failed) == bool(outcomes["unknown"])
        state = emulator.state()
        arrived = Counter(stored["source"] for stored in state["files"])
        return Batch(outcomes, arrived, state["requests"]["upload"])

    return run


def until_arrived(count: int, emulator: Emulator) -> None:
    eventually(lambda: emulator.state()["requests"].get("upload", 0) >= count, 60)


def reload_often(front_end: FrontEnd, emulator: Emulator, every: int) -> None:
    """Reload a front end each time so many uploads have arrived."""
    for number in range(1, RELOADS + 1):
        until_arrived(number * every, emulator)
        front_end.reload(front_end.given)


def restart(front_end: FrontEnd, emulator: Emulator) -> None:
    """Stop a front end in the middle of what it does, and start it again."""
    until_arrived(300, emulator)
    front_end.stop()
    front_end.start()


@pytest.mark.parametrize(
    ("config", "count"),
    [
        pytest.param(
            server(LOCATION),
            2_000,
            marks=guarantee("front-ends", "nginx: five reloads while a batch sends 2,000 URLs"),
            id="nginx",
        ),
        pytest.param(
            HAPROXY,
            1_000,
            marks=guarantee("front-ends", "haproxy: five restarts (SIGUSR2) while a batch sends 1,000 URLs"),
            id="haproxy",
        ),
    ],
)
def test_a_batch_across_reloads(
    config: str,
    count: int,
    front_end: Any,
    emulator: Emulator,
    batch: Callable[..., Batch],
    proven: Proof,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is in transit over kept connections at the first reload that loses any is unknown; no later reload loses any."""
    running, every = front_end(config), count // 10
    with ThreadPoolExecutor(1) as thread:
        reloads = thread.submit(reload_often, running, emulator, every)
        done = batch(count)
        reloads.result()
    unknown = sorted(map(number_of, done.outcomes["unknown"]))
    assert len(unknown) <= CONCURRENCY
    assert not unknown or unknown[-1] - unknown[0] < every, unknown
    assert caplog.text.count("from now on each upload opens a connection of its own") == bool(unknown)
    done.hand_in(proven)


@guarantee("front-ends", "nginx: it is stopped and started again while a batch sends 1,000 URLs")
def test_a_batch_whose_front_end_restarts(front_end: Any, emulator: Emulator, batch: Callable[..., Batch], proven: Proof) -> None:
    """Those whose responses it took with it are unknown, and may have arrived."""
    with ThreadPoolExecutor(1) as thread:
        restarted = thread.submit(restart, front_end(server(LOCATION)), emulator)
        done = batch(1_000)
        restarted.result()
    assert len(done.outcomes["unknown"]) <= CONCURRENCY
    done.hand_in(proven)


@guarantee("front-ends", "nginx: `limit_req` with `limit_req_status 429` while a batch sends 60 URLs")
def test_a_batch_waits_for_a_limit_that_is_reported_with_429(front_end: Any, batch: Callable[..., Batch], proven: Proof) -> None:
    nginx = front_end(limit("10r/s", "limit_req_status 429;", BURST))
    done = batch(60)
    eventually(lambda: '" 429 ' in nginx.logged())
    assert not done.outcomes["unknown"]
    done.hand_in(proven)


@guarantee("front-ends", "nginx: `limit_req` with its default status, 503, while a batch sends 60 URLs")
def test_a_limit_that_is_reported_with_503_makes_outcomes_unknown(
    front_end: Any, batch: Callable[..., Batch], proven: Proof
) -> None:
    front_end(limit("10r/s", burst=BURST))
    done = batch(60)
    assert done.outcomes["unknown"]
    assert not done.outcomes["unknown"] & done.arrived.keys()
    done.hand_in(proven)


@guarantee("front-ends", "nginx: the same limit while a batch sends 60 URLs with a lower `requests_per_second`")
def test_a_batch_that_is_slower_than_a_limit_never_meets_it(front_end: Any, batch: Callable[..., Batch], proven: Proof) -> None:
    front_end(limit("10r/s", burst=BURST))
    done = batch(60, requests_per_second=9)
    assert not done.outcomes["unknown"]
    done.hand_in(proven)


@guarantee("front-ends", "nginx: `keepalive_requests 3` while a batch sends 500 URLs")
def test_a_batch_over_connections_that_end_after_three_requests(
    front_end: Any, emulator: Emulator, batch: Callable[..., Batch], proven: Proof
) -> None:
    front_end(server(f"keepalive_requests 3; {LOCATION}"))
    done = batch(500)
    assert not done.outcomes["unknown"]
    done.hand_in(proven)
