"""A batch's manifest and receipts in object stores that people really use, through Airflow's ``ObjectStoragePath``.

The scenarios of an outage run at the same time, each with an emulator, a gateway and processes of its own; a test waits for one.
Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.recording import Receipts, Try
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dags import batch_dags as dags
from tests.guarantees import Proof, guarantee
from tests.support import eventually, run_dag
from tests.unit.batch.folders import MemoryFolder
from tests.wire.neighbours.buckets import FIRST, NAME, SECOND, AzureContainer, Bucket, S3Bucket
from tests.wire.neighbours.conftest import Store
from tests.wire.neighbours.gateway import Gateway
from tests.wire.neighbours.servers import S3, Azurite, Missing
from tests.wire.neighbours.tries import CONCURRENCY, IDENTITY, RATE, Process

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("airflow_db")]

URLS = [f"https://source.example/{number}?sig=hunter{number}" for number in range(30)]
MANIFEST = "\n".join(["id,link", *(f"{number},{url}" for number, url in enumerate(URLS))]).encode()
MANY = [f"https://source.example/{number}?sig=hunter{number}" for number in range(480)]
TWICE = CONCURRENCY + 2 * RATE  # what one outage may send twice: what was in flight, and two seconds of sending
OUTAGE_LIMIT = 15.0  # instead of five minutes; a busy machine may need some seconds for a single write
CHECKPOINTS, LINES = 3_600, 10


def run_batch(manifest: str, receipts: str) -> dict[str, Any] | None:
    """What a batch returned; None if it failed."""
    state, _, values = run_dag(dags.batch, {"urls": manifest, "receipts": receipts})
    return dict(values["batch"]) if state == "success" else None


def test_a_batch_has_its_manifest_and_its_receipts_in_an_object_store(store: Store, emulator: Emulator) -> None:
    store.bucket.fill({"urls.csv": MANIFEST})
    here, missing = f"{store.root}{NAME}", f"{store.root}missing"
    for runs in (1, 2):  # receipts belong to one DAG run, also where two have the same folder
        summary = run_batch(f"{here}/urls.csv", f"{here}/receipts")  # a prefix that does not exist at first
        assert summary is not None
        assert (summary["total"], summary["queued"], summary["queued_earlier"]) == (len(URLS), len(URLS), 0)
        assert sorted(stored["source"] for stored in emulator.state()["files"]) == sorted(URLS * runs)
        parts = store.bucket.texts("receipts/part-")
        lines = [json.loads(line)["line"] for part in parts for line in part.splitlines()]
        assert sorted(lines) == sorted([*range(2, len(URLS) + 2)] * runs)
        assert "hunter" not in "".join(parts)
    before = emulator.state()["requests"]
    assert run_batch(f"{here}/urls.csv", f"{missing}/receipts") is None
    for manifest in (f"{here}/receipts", f"{here}/missing.csv", f"{missing}/urls.csv"):
        assert run_batch(manifest, f"{here}/others") is None
    assert emulator.state()["requests"] == before
    assert store.bucket.buckets() == [NAME]


@dataclass
class Figures:
    """What a scenario came to.

    :param urls: what had to be sent.
    :param ended: what its last try returned.
    :param requests: how many uploads the service got.
    :param arrived: the same, by URL.
    :param seconds: until work went on.
    :param receipts: those in the store.
    :param seen: what else the test checks.
    """

    urls: list[str]
    ended: dict[str, Any]
    requests: int
    arrived: Counter[str]
    seconds: float
    receipts: list[dict[str, Any]]
    seen: dict[str, Any]

    def prove(self, proven: Proof, at_most: int) -> None:
        assert self.ended.get("queued") == len(self.urls), self.ended
        reported = {line["digest"] for line in self.receipts if line["status"] == "queued"}
        assert reported >= {hashlib.sha256(url.encode()).hexdigest() for url in self.urls}
        self.hand_in(proven, at_most)

    def hand_in(self, proven: Proof, at_most: int) -> None:
        effects = sum(self.arrived.values())
        proven(
            requests=self.requests,
            effects=effects,
            twice=effects - len(self.arrived),
            at_most=at_most,
            lost=len(set(self.urls) - self.arrived.keys()),
            seconds=self.seconds,
        )


@dataclass
class Scenario:
    """A batch whose manifest and receipts are behind a gateway; each has a folder of its own in the bucket.

    :param bucket: the bucket.
    :param name: its folder.
    :param folder: where its tries leave their results.
    :param latency: of each request to the store, in seconds.
    """

    bucket: Bucket
    name: str
    folder: Path
    latency: float = 0.0
    seen: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @contextmanager
    def prepared(self, urls: list[str] = MANY) -> Iterator[tuple[Emulator, Gateway]]:
        with Emulator(fetch_delay=3600) as emulator, Gateway(self.bucket.port, self.bucket.refusal, self.latency) as gateway:
            self.emulator, self.gateway = emulator, gateway
            self.bucket.fill({f"{self.name}/urls.txt": "\n".join(urls).encode()})
            yield emulator, gateway

    def start(self, credential: str = FIRST, outage_limit: float = 300.0, number: int = 0) -> Process:
        """Start the next try."""
        conn_id = f"{self.name}_{credential}".replace("-", "_")
        env = {
            "AIRFLOW_CONN_CLOUDSTORE_DEFAULT": self.emulator.connection,
            f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(self.bucket.connection(self.gateway.url, credential)),
        }
        root = f"{self.bucket.scheme}://{conn_id}@{NAME}/{self.name}"
        arguments = {"urls": f"{root}/urls.txt", "receipts": f"{root}/receipts"}
        number = number or next(self._numbers)
        return Process(number, env, arguments, self.folder / f"{self.name}-{number}", outage_limit)

    def uploads(self) -> int:
        return int(self.emulator.state()["requests"].get("upload", 0))

    def until_sent(self, more_than: int) -> float:
        """Wait for uploads, and return how long that took."""
        since = time.monotonic()
        eventually(lambda: self.uploads() > more_than, 120)
        return time.monotonic() - since

    def figures(self, ended: dict[str, Any], seconds: float, urls: list[str] = MANY) -> Figures:
        state = self.emulator.state()
        arrived = Counter(stored["source"] for stored in state["files"])
        texts = self.bucket.texts(f"{self.name}/receipts/part-")
        receipts = [json.loads(line) for text in texts for line in text.splitlines()]
        return Figures(urls, ended, state["requests"]["upload"], arrived, seconds, receipts, self.seen)


def away(scenario: Scenario, how: str) -> Figures:
    """The store is away for ten seconds in the middle of the batch."""
    with scenario.prepared() as (_, gateway):
        begin, end = {
            "frozen": (gateway.freeze, gateway.thaw),
            "refused": (gateway.close, gateway.open),
            "expired": (
                lambda: setattr(gateway, "expired", scenario.bucket.marks(FIRST)),
                lambda: setattr(gateway, "expired", b""),
            ),
        }[how]
        running = scenario.start()
        scenario.until_sent(2 * RATE)
        begin()
        before = scenario.uploads()
        time.sleep(6)  # longer than the lease
        paused = scenario.uploads()
        time.sleep(4)
        scenario.seen |= {"after": paused - before, "later": scenario.uploads() - paused, "refused": gateway.refused}
        end()
        seconds = scenario.until_sent(paused)
        return scenario.figures(running.finish(), seconds)


def renewed(scenario: Scenario) -> Figures:
    """The connection's credentials expire for good; the retry, in a new process, has others."""
    with scenario.prepared() as (_, gateway):
        running = scenario.start(outage_limit=OUTAGE_LIMIT)
        scenario.until_sent(2 * RATE)
        gateway.expired = scenario.bucket.marks(FIRST)
        scenario.seen |= running.finish()
        sent = scenario.uploads()
        retry = scenario.start(SECOND)
        seconds = scenario.until_sent(sent)
        return scenario.figures(retry.finish(), seconds)


def killed(scenario: Scenario) -> Figures:
    """The process of the first try is killed; Airflow's retry starts as soon as that is known."""
    with scenario.prepared():
        running = scenario.start()
        scenario.until_sent(len(MANY) // 2)
        running.kill()
        sent = scenario.uploads()
        retry = scenario.start()
        seconds = scenario.until_sent(sent)
        return scenario.figures(retry.finish(), seconds)


def an_hour_of_receipts() -> tuple[list[str], dict[str, bytes]]:
    """The URLs that a first try has sent in an hour, and the files that it has written meanwhile."""
    urls = [f"https://source.example/{number}" for number in range(CHECKPOINTS * LINES)]
    memory = MemoryFolder()
    receipts = Receipts(memory, Try(tuple(str(value) for value in IDENTITY.values()), 1))
    receipts.begin()
    for first in range(0, len(urls), LINES):
        lines = []
        for line, url in enumerate(urls[first : first + LINES], first + 1):
            digest = hashlib.sha256(url.encode()).hexdigest()
            lines.append(json.dumps({"line": line, "digest": digest, "url": url, "status": "queued", "try": 1}))
        receipts.write(lines)
    return urls, memory.files


def parts_of(scenario: Scenario) -> Figures:
    """A second try reads the receipts of an hour, and sends the rest; each request to the store takes 20 ms longer."""
    earlier, files = an_hour_of_receipts()
    with scenario.prepared([*earlier, *MANY[:20]]) as (_, gateway):
        scenario.bucket.fill({f"{scenario.name}/receipts/{name}": content for name, content in files.items()})
        running = scenario.start(number=2)
        seconds = scenario.until_sent(0)
        scenario.seen["requests"] = gateway.requests
        ended = running.finish()
        state = scenario.emulator.state()
        arrived = Counter(stored["source"] for stored in state["files"])
        return Figures(MANY[:20], ended, state["requests"]["upload"], arrived, seconds, [], scenario.seen)


Run = Callable[[str, str], Figures]
SCENARIOS: dict[str, Callable[[Scenario], Figures]] = {
    "frozen": lambda scenario: away(scenario, "frozen"),
    "refused": lambda scenario: away(scenario, "refused"),
    "expired": lambda scenario: away(scenario, "expired"),
    "renewed": renewed,
    "killed": killed,
}


@pytest.fixture(scope="module")
def figures(airflow_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The figures of a scenario with a store; all of them run at once, and those of the parts after them."""
    kinds: dict[str, Callable[[ExitStack], Bucket]] = {
        "s3": lambda stack: S3Bucket(stack.enter_context(S3())),
        "azure": lambda stack: AzureContainer(stack.enter_context(Azurite())),
    }
    folder = tmp_path_factory.mktemp("tries")
    runs: dict[tuple[str, str], Future[Figures]] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for store, kind in kinds.items():
            try:
                bucket = kind(stack)
            except Missing as reason:
                missing[store] = str(reason)
                continue
            threads = stack.enter_context(ThreadPoolExecutor(len(SCENARIOS)))
            for name, play in SCENARIOS.items():
                runs[store, name] = threads.submit(play, Scenario(bucket, f"{store}-{name}", folder))
            runs[store, "parts"] = threads.submit(parts_of, Scenario(bucket, f"{store}-parts", folder, latency=0.02))

        def of(store: str, name: str) -> Figures:
            if store in missing:
                pytest.skip(missing[store])
            return runs[store, name].result()

        yield of


@pytest.mark.parametrize(
    ("store", "how"),
    [
        pytest.param("s3", "frozen", marks=guarantee("object-stores", "S3: hangs for ten seconds")),
        pytest.param("s3", "refused", marks=guarantee("object-stores", "S3: refuses connections for ten seconds")),
        pytest.param("s3", "expired", marks=guarantee("object-stores", "S3: refuses the credentials for ten seconds")),
        pytest.param("azure", "frozen", marks=guarantee("object-stores", "Azure Blob: hangs for ten seconds")),
        pytest.param("azure", "refused", marks=guarantee("object-stores", "Azure Blob: refuses connections for ten seconds")),
        pytest.param("azure", "expired", marks=guarantee("object-stores", "Azure Blob: refuses the credentials for ten seconds")),
    ],
)
def test_a_batch_pauses_while_its_object_store_is_away_and_resumes(figures: Run, store: str, how: str, proven: Proof) -> None:
    found = figures(store, how)
    assert found.seen["after"] <= TWICE
    assert found.seen["later"] == 0
    assert (found.seen["refused"] > 0) == (how == "expired")
    assert sorted(line["line"] for line in found.receipts) == list(range(1, len(MANY) + 1))
    found.prove(proven, at_most=0)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("s3", marks=guarantee("object-stores", "S3: the credentials expire; the retry has new ones")),
        pytest.param("azure", marks=guarantee("object-stores", "Azure Blob: the credentials expire; the retry has new ones")),
    ],
)
def test_a_batch_whose_credentials_have_expired_ends_so_that_a_retry_with_new_ones_resumes(
    figures: Run, store: str, proven: Proof
) -> None:
    found = figures(store, "renewed")
    assert "BatchInterruptedError" in found.seen["error"]
    assert "AirflowFailException" not in found.seen["error"]  # Airflow retries it
    assert "the receipts cannot be written: retried for 15 s" in found.seen["text"]
    found.prove(proven, at_most=TWICE)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("s3", marks=guarantee("object-stores", "S3: the process is killed; the retry resumes from receipts")),
        pytest.param(
            "azure", marks=guarantee("object-stores", "Azure Blob: the process is killed; the retry resumes from receipts")
        ),
    ],
)
def test_a_retry_resumes_from_the_receipts_of_a_killed_process(figures: Run, store: str, proven: Proof) -> None:
    figures(store, "killed").prove(proven, at_most=TWICE)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("s3", marks=guarantee("object-stores", "S3: a retry reads an hour of receipts at 20 ms a request")),
        pytest.param(
            "azure",
            marks=guarantee("object-stores", "Azure Blob: a retry reads an hour of receipts at 20 ms a request"),
        ),
    ],
)
def test_a_retry_reads_an_hour_of_receipts_with_a_few_requests_and_sends_only_the_rest(
    figures: Run, store: str, proven: Proof
) -> None:
    found = figures(store, "parts")
    assert found.ended["queued_earlier"] == CHECKPOINTS * LINES
    assert found.seen["requests"] < 60
    found.hand_in(proven, at_most=0)
