"""The shipped job through thousands of histories of faults, in virtual time, against a simple model.

A history is a batch over several tries. Its service, its stores, its process and its clock fail at random, from a seed, and its
user changes the manifest between tries. The model knows what the service took, and that is all
that it takes to say: nothing is lost, little is sent twice, the counts are right.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch import job, receipts, sender
from airflow_provider_cloudstore.batch.job import Job
from airflow_provider_cloudstore.batch.lease import LEASE, Lease
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.receipts import Folder, Receipts, Status, Try
from airflow_provider_cloudstore.batch.sender import Options
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from tests.support import settings
from tests.unit.batch.folders import digest_of
from tests.unit.batch.virtual import LOST, UNREACHABLE, Connectable, VirtualLoop, response

HISTORIES = int(os.environ.get("CLOUDSTORE_HISTORIES", "40"))
SETTINGS = settings(max_attempts=3, timeout=10.0)


class Unlucky(Exception):
    """A store fails."""


class World:
    """The service and the stores, which outlive every try."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        dice = self.dice
        count = dice.randrange(1, 90)
        self.urls = [f"https://source.example/{dice.randrange(count) if dice.random() < 0.15 else n}" for n in range(count)]
        self.options: dict[str, Any] = {
            "max_concurrency": dice.choice([1, 3, 8]),
            "requests_per_second": dice.choice([5, 10, 25]),
        }
        self.effects: Counter[str] = Counter()
        self.files: dict[str, bytes] = {}
        self.late: dict[str, bytes] = {}
        self.calm = False
        self.until = 0.0
        self.mode = "ok"
        self.store_mode = "ok"
        self.processes: list[Process] = []

    def is_owned_by(self, number: int) -> bool:
        owners = [content.decode() for name, content in self.files.items() if name.startswith("batch")]
        return any(f'"number": {number},' in owner for owner in owners)

    def service_mode(self, now: float) -> str:
        if self.calm:
            return "ok"
        if now >= self.until:
            self.until = now + self.dice.expovariate(0.4)
            self.mode = self.dice.choice(["ok"] * 6 + ["503", "lost after", "404", "unreachable", "429", "slow", "mixed"])
        return self.dice.choice(["ok", "400", "lost after", "lost before", "slow"]) if self.mode == "mixed" else self.mode

    def store_fails(self) -> bool:
        if self.calm:
            return False
        if self.dice.random() < 0.1:
            self.store_mode = self.dice.choice(["ok", "ok", "ok", "down"])
        return self.store_mode == "down" or self.dice.random() < 0.05


class Process(Folder, Connectable):
    """One try, in a process of its own: with a loop, a clock, and a client whose requests meet the world."""

    location = "the folder"

    def __init__(self, world: World, number: int, now: float) -> None:
        self.world, self.number = world, number
        self.loop = VirtualLoop(now)
        self.dead = self.terminated = False
        self.durable = -99.0
        self.unknown: set[str] = set()
        self.is_local = False
        self.report: Ledger | None = None
        self.error: BaseException | None = None
        self.task = self.loop.create_task(self.main())
        world.processes.append(self)

    async def main(self) -> None:
        one = Job(
            lambda: list_manifest([*self.world.urls]),
            lambda: SETTINGS,
            Options(**self.world.options),
            Receipts(self, Try(("simulated",), self.number)),
            must_end=lambda: "the task was terminated" if self.terminated else "",
            connect=self.connect,
            clock=self.loop.time,
            in_thread=self.in_thread,
        )
        try:
            self.report = await one.run()
        except exceptions.CloudStoreError as error:
            self.error = error

    def in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return self.loop.create_task(self.blocking(work))

    async def blocking(self, work: Callable[[], Any]) -> Any:
        began, dice = self.loop.time(), self.world.dice
        await asyncio.sleep(0 if self.world.calm else dice.choice([0.0, 0.01, 0.1, 0.1, dice.uniform(0, 5)]))
        self.touched = False
        result = work()
        if self.touched:
            self.durable = began
        return result

    # The receipts' folder.

    def read(self, name: str) -> bytes | None:
        if self.dead or self.world.store_fails():
            raise Unlucky
        self.touched = self.touched or name.startswith("batch")
        return self.world.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        if self.dead:
            raise Unlucky
        world, fails = self.world, self.world.store_fails()
        if not fails or world.dice.random() < 0.3:  # it was written, and nobody was told
            world.files[name] = content
        elif name.startswith("part-"):
            world.late[name] = content
        if fails:
            self.touched = False
            raise Unlucky
        self.touched = True
        if world.dice.random() < 0.3:  # a request that failed arrives after all
            world.files |= world.late
            world.late.clear()

    def names(self) -> list[str]:
        return list(self.world.files)

    # The service.

    async def send(self, request: Any, *_: Any) -> Response | TransportFailure:
        if self.dead:
            raise asyncio.CancelledError
        now, world = self.loop.time(), self.world
        assert now - self.durable < LEASE, "sent without a lease"
        mode, url = world.service_mode(now), parse_qs(request.body.decode())["url"][0]
        assert url not in self.unknown, "resent what may have arrived"
        if mode in ("ok", "slow", "lost after"):
            world.effects[url] += 1
        await asyncio.sleep(world.dice.uniform(2, 9) if mode == "slow" else world.dice.uniform(0.01, 0.2))
        if mode == "unreachable":
            return UNREACHABLE
        if mode.startswith("lost"):
            self.unknown.add(url)
            return LOST
        status = {"ok": 200, "slow": 200}.get(mode) or int(mode)
        return response(status, {"retry-after": "0.7"} if mode == "429" else {})

    # What happens to a process.

    def finish(self) -> None:
        self.loop.run_until_complete(self.task)

    def kill(self) -> None:
        """SIGKILL: whatever it still does has no effect on the world."""
        self.dead = True
        while not self.task.done():
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until(self.loop.now + 0.1)
        self.close()

    def close(self) -> None:
        self.discard()
        if not self.task.cancelled() and (error := self.task.exception()):
            raise error

    def discard(self) -> None:
        """End whatever still runs, and leave the error of the try alone."""
        while left := asyncio.all_tasks(self.loop):
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(left))
        self.loop.close()


def history(seed: int) -> None:
    """One batch from its first try to the end, and the model's verdict."""
    world = World(seed)
    try:
        play(world, seed)
    finally:
        for process in world.processes:
            process.dead = True
            process.discard()


def play(world: World, seed: int) -> None:
    """All tries of a batch, and the model's verdict."""
    dice, now, interruptions, process, clears = world.dice, 0.0, 0, None, 2
    for number in range(1, 16):
        world.calm = number > 9
        process = Process(world, 2 * number, now)
        end = "none" if world.calm else dice.choice(["none", "none", "kill", "term", "freeze"])
        process.loop.run_until(now + dice.uniform(0.5, 8)) if end != "none" else None
        if end != "none" and not process.task.done():
            interruptions += 1
            if end == "kill":
                process.kill()
            elif end == "freeze":
                now = freeze(world, process, number)
                continue
            process.terminated = end == "term"
        if not process.dead:
            process.finish()
            process.close()
            away = process.error or (process.report and process.report.error)
            interruptions += "receipts cannot be" in str(away)
        now = process.loop.now + 1
        report = process.report
        assert not report or sum(report.counts.values()) == report.total == len(world.urls), (seed, report.counts)
        if report and not (isinstance(report.error, exceptions.BatchInterruptedError) or report.counts[Status.UNSENT]):
            if world.calm or not clears or dice.random() < 0.5:
                break
            clears -= 1
            change_manifest(world, report)
    assert process
    assert process.report, (seed, process.error)
    verdict(world, process.report, interruptions, seed)


def change_manifest(world: World, report: Ledger) -> None:
    """What a user may do before the task is cleared: correct what failed, add, move and remove lines."""
    dice = world.dice
    for failure in report.failures:
        if failure["status"] == "failed" and dice.random() < 0.7:
            world.urls[failure["line"] - 1] = dice.choice([f"https://corrected.example/{dice.random()}", dice.choice(world.urls)])
    world.urls += [f"https://added.example/{dice.random()}" for _ in range(dice.randrange(5))]
    dice.shuffle(world.urls)
    del world.urls[: dice.randrange(3) if len(world.urls) > 3 else 0]


def freeze(world: World, old: Process, number: int) -> float:
    """SIGSTOP for longer than Airflow waits: a newer try runs, and the old one, which thaws in the middle of it, stops."""
    new = Process(world, 2 * number + 1, old.loop.now + world.dice.uniform(0.1, 5))
    new.loop.run_until(new.loop.now + world.dice.uniform(0.1, 6))
    old.loop.now = new.loop.now
    is_superseded, before = world.is_owned_by(new.number), Counter(world.effects)
    old.finish()
    old.close()
    has_failed = old.error or (old.report and old.report.error)
    assert not is_superseded or has_failed or world.effects == before, "a try went on after a newer one had begun"
    if not new.task.done():
        new.terminated = True
        new.finish()
    new.close()
    return max(old.loop.now, new.loop.now) + 1


def verdict(world: World, report: Ledger, interruptions: int, seed: int) -> None:
    wanted, counted = set(world.urls), report.counts
    assert counted[Status.SKIPPED] <= len(world.urls) - len(wanted), (seed, counted)
    missing = sum(not world.effects[url] for url in wanted)
    twice = sum(max(0, effects - 1) for effects in world.effects.values())
    bad = counted[Status.FAILED] + counted[Status.UNKNOWN]
    assert missing <= bad, (seed, "lost", missing, counted)
    per_interruption = world.options["max_concurrency"] + LEASE * world.options["requests_per_second"] + 2
    assert twice <= interruptions * 2 * per_interruption, (seed, "sent twice", twice, interruptions)
    parts = (content for name, content in world.files.items() if name.startswith("part-"))
    lines = [json.loads(line) for content in parts for line in content.splitlines()]
    reported = {receipt["digest"] for receipt in lines if receipt["status"] == "queued"}
    known = {digest for digest in (digest_of(url).hex() for url in wanted) if digest in reported}
    assert len(known) >= counted[Status.QUEUED], (seed, "receipts lost", len(known), counted)
    if report.error is None:
        assert counted == {**dict.fromkeys(Status, 0), Status.QUEUED: len(wanted), Status.SKIPPED: len(world.urls) - len(wanted)}


@pytest.fixture(autouse=True)
def _quiet_and_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(receipts, "PART_SIZE", 2_000)
    monkeypatch.setattr(sender, "_LINES_AT_ONCE", 2)
    monkeypatch.setattr(job, "_POLL_INTERVAL", 1.0)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_history_loses_a_url_or_sends_more_than_allowed() -> None:
    for seed in range(HISTORIES):
        history(seed)


def is_found() -> bool:
    """Whether the model notices a fault of the batch in one of 200 histories."""
    for seed in range(200):
        try:
            history(seed)
        except AssertionError:
            return True
    return False


WRITE, NOTE_EARLIER = Receipts.write, Ledger.note_earlier


def forget_failed(self: Any, lines: list[str]) -> None:
    with suppress(Unlucky):
        WRITE(self, lines)


def forget_part(self: Any, lines: list[str]) -> None:
    self._content = b""
    WRITE(self, lines)


def settle(self: Any, outcomes: Any) -> None:
    NOTE_EARLIER(self, [(digest, Status.QUEUED) for digest, _ in outcomes])


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "sends without a lease": (Lease, "is_valid", property(lambda self: True)),
    "adds to a part whose request failed": (Receipts, "_begin_part", lambda self: None),
    "has no fence": (Receipts, "_find_owner", lambda self, **_: self.folder.read(self._owner) is not None),
    "forgets what it could not write": (Receipts, "write", forget_failed),
    "forgets the part that it writes anew": (Receipts, "write", forget_part),
    "takes a failed URL for settled": (Ledger, "note_earlier", settle),
}


@pytest.mark.parametrize(("owner", "name", "value"), PLANTED.values(), ids=PLANTED)
def test_a_batch_with_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> None:
    monkeypatch.setattr(owner, name, value, raising=False)
    assert is_found()


def test_a_batch_that_resends_what_may_have_arrived_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exceptions.OutcomeUnknownError, "retried", True)
    monkeypatch.setattr(exceptions.OutcomeUnknownError, "may_have_effect", False)
    assert is_found()
