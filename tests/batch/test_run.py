from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.manifest import Entry, entries_of_list
from airflow_provider_cloudstore.batch.progress import Progress
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.run import Batch, BatchOptions, Done
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import calls, errors
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import eventually, settings


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_BACKOFF_FROM", 0.01)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fetch_delay=600) as running:
        yield running


def urls(count: int, start: int = 0) -> list[str]:
    return [f"https://source.example/{number}?sig=hunter{number}" for number in range(start, start + count)]


def batch(emulator: Emulator, wanted: list[Any], reload: Any = None, **more: Any) -> Batch:
    own = settings(emulator.url, more.pop("token", emulator.access_token), max_attempts=3, timeout=5.0)
    names = BatchOptions.__dataclass_fields__
    options = BatchOptions(**{key: more.pop(key) for key in list(more) if key in names})
    entries = more.pop("entries", None) or entries_of_list(wanted)
    return Batch(entries, own, reload or (lambda: own), options, total=len(wanted), **more)


def run(of: Batch) -> dict[str, int]:
    try:
        asyncio.run(of.run())
    finally:
        of.save()
    return dict(of.progress.counts)


def arrived(emulator: Emulator) -> list[str]:
    return [stored["source"] for stored in emulator.state()["files"]]


def stop_after_some(made: Batch, emulator: Emulator) -> None:
    def wait() -> None:
        eventually(lambda: len(arrived(emulator)) > 20)
        made.stop()

    threading.Thread(target=wait).start()


def test_every_url_is_queued_once(emulator: Emulator) -> None:
    wanted = urls(500)
    assert run(batch(emulator, wanted)) == {"queued": 500}
    assert sorted(arrived(emulator)) == sorted(wanted)
    assert emulator.state()["connections"]["opened"] <= 16


@pytest.mark.parametrize(("skip", "counts"), [(True, {"queued": 2, "skipped": 3}), (False, {"queued": 5})])
def test_a_url_that_stands_twice_is_sent_once_unless_told_otherwise(
    emulator: Emulator, skip: bool, counts: dict[str, int]
) -> None:
    one, two = urls(2)
    assert run(batch(emulator, [one, two, one, one, two], skip_duplicates=skip)) == counts


def test_a_bad_line_is_reported_with_its_number_and_the_rest_goes_on(emulator: Emulator) -> None:
    entries = iter(
        [
            Entry(0, 1, urls(1)[0]),
            Entry(1, 2, None, "the line is no JSON"),
            Entry(2, 3, "file:///x?sig=hunter2"),
            Entry(3, 4, None),
        ]
    )
    made = batch(emulator, [1, 2, 3, 4], entries=entries)
    assert run(made) == {"queued": 1, "failed": 3}
    assert [failure["error"].split(":")[0] for failure in made.progress.failures] == ["line 2", "line 3", "line 4"]
    assert "hunter2" not in str(made.progress.failures)


def test_no_more_requests_are_in_flight_than_allowed(emulator: Emulator) -> None:
    emulator.fault("delay", seconds=0.05, times=0)
    for allowed in (7, 48):
        emulator.call(lambda service: service.store.connections.clear())
        run(batch(emulator, urls(200), max_concurrency=allowed))
        assert emulator.state()["connections"]["peak"] == allowed


def test_a_rate_holds_for_the_whole_batch(emulator: Emulator) -> None:
    began = time.monotonic()
    run(batch(emulator, urls(50), requests_per_second=50))
    assert 0.9 <= time.monotonic() - began < 5


def test_a_pause_that_the_service_asks_for_is_the_whole_batchs(emulator: Emulator) -> None:
    moments: list[float] = []
    emulator.call(lambda service: _note_arrivals(service, moments))
    emulator.fault("delay", seconds=0.02, times=60)
    emulator.fault("status", status=429, headers={"Retry-After": "1"}, times=1)
    assert run(batch(emulator, urls(300), max_concurrency=8)) == {"queued": 300}
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert max(gaps) > 0.85


def _note_arrivals(service: Any, moments: list[float]) -> None:
    queue = service.store.queue_upload
    service.store = _Noting(service.store, queue, moments)


class _Noting:
    def __init__(self, store: Any, queue: Any, moments: list[float]) -> None:
        self._store, self._queue, self._moments = store, queue, moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def queue_upload(self, url: str) -> Any:
        self._moments.append(time.monotonic())
        return self._queue(url)


def test_a_service_that_takes_nothing_for_too_long_ends_the_batch_for_a_later_retry(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_cloudstore.batch import run as module

    monkeypatch.setattr(module, "_PAUSE_AT_MOST", 0.5)
    emulator.fault("status", status=429, headers={"Retry-After": "0.2"}, times=0)
    made = batch(emulator, urls(100))
    with pytest.raises(errors.RateLimited) as ended:
        run(made)
    assert not ended.value.permanent
    assert made.progress.finished == 0


def test_progress_with_too_much_ahead_goes_on(emulator: Emulator) -> None:
    from airflow_provider_cloudstore.batch.progress import Status, digest_of

    wanted, progress = urls(1500), Progress()
    for position in range(1, 1400):
        progress.finish(position, digest_of(wanted[position]).hex(), Status.QUEUED)
    assert run(batch(emulator, wanted, progress=Progress.from_state(progress.to_state()))) == {"queued": 1500}
    assert len(arrived(emulator)) == 101


def test_a_time_limit_ends_it_as_a_kill_does(emulator: Emulator) -> None:
    emulator.fault("delay", seconds=0.1, times=0)
    made = batch(emulator, urls(1000), time_limit=0.5)
    began = time.monotonic()
    run(made)
    assert made.killed
    assert time.monotonic() - began < 2


def test_a_storm_of_429_loses_nothing_and_sends_nothing_twice(emulator: Emulator) -> None:
    emulator.fault("status", status=429, headers={"Retry-After": "0"}, times=200)
    wanted = urls(200)
    assert run(batch(emulator, wanted)) == {"queued": 200}
    assert sorted(arrived(emulator)) == sorted(wanted)
    assert emulator.state()["requests"]["upload"] == 400


def test_outcomes_that_nobody_knows_are_counted_apart_and_not_sent_again(emulator: Emulator) -> None:
    emulator.fault("drop_after", times=10)
    emulator.fault("status", status=500, times=5)
    made = batch(emulator, urls(100))
    assert run(made) == {"queued": 85, "unknown": 15}
    assert emulator.state()["requests"]["upload"] == 100
    assert {failure["status"] for failure in made.progress.failures} == {"unknown"}


def test_they_are_sent_again_where_the_user_opted_in(emulator: Emulator) -> None:
    emulator.fault("drop_before", times=10)
    assert run(batch(emulator, urls(100), retry_unknown_outcome=True)) == {"queued": 100}
    assert emulator.state()["effects"]["upload"] == 100


def test_a_token_that_is_rotated_half_way_is_picked_up(emulator: Emulator) -> None:
    first = emulator.access_token
    emulator.fault("delay", seconds=0.01, times=0)
    threading.Timer(0.3, lambda: emulator.call(lambda service: setattr(service, "access_token", "rotated-token"))).start()

    def reload() -> Settings:
        return settings(emulator.url, emulator.access_token)

    assert run(batch(emulator, urls(1000), reload)) == {"queued": 1000}
    assert emulator.access_token != first
    assert len(set(arrived(emulator))) == len(arrived(emulator)) == 1000


def test_a_token_that_is_refused_for_good_ends_the_batch_and_leaves_the_rest_for_a_retry(emulator: Emulator) -> None:
    made = batch(emulator, urls(100), token="wrong-token")
    with pytest.raises(errors.TokenRefused):
        run(made)
    assert made.progress.finished == 0
    assert emulator.state()["requests"]["upload"] <= 32


def test_stop_ends_with_the_first_failure_and_a_retry_begins_with_it(emulator: Emulator) -> None:
    wanted = urls(100)
    wanted[40] = "file:///x"
    made = batch(emulator, wanted, stop_on_error=True)
    assert run(made) == {"queued": made.progress.finished}
    assert made.stopped_by is not None
    assert made.stopped_by["line"] == 41
    wanted_now = [*wanted[:40], *urls(1, 500), *wanted[41:]]  # the line is mended: another manifest, but not before the watermark
    again = batch(emulator, wanted_now, progress=Progress.from_state(made.progress.to_state()))
    assert run(again) == {"queued": 100}
    assert len(arrived(emulator)) == len(set(arrived(emulator))) == 100


def test_an_interrupted_batch_goes_on_where_it_stopped(emulator: Emulator) -> None:
    emulator.fault("delay", seconds=0.05, times=0)
    wanted = [*urls(400), *urls(10)]
    states: list[dict[str, Any]] = []
    made = batch(emulator, wanted, checkpoint=states.append)
    stop_after_some(made, emulator)
    first = run(made)
    assert 0 < sum(first.values()) < 400
    again = batch(emulator, wanted, progress=Progress.from_state(states[-1]))
    assert run(again) == {"queued": 400, "skipped": 10}
    assert sorted(arrived(emulator)) == sorted(urls(400))


@pytest.mark.parametrize(
    "fault", [{"kind": "delay", "seconds": 30}, {"kind": "status", "status": 429, "headers": {"Retry-After": "60"}}]
)
def test_a_kill_ends_it_within_two_seconds_whatever_it_waits_for(emulator: Emulator, fault: dict[str, Any]) -> None:
    made = batch(emulator, urls(1000))
    states: list[dict[str, Any]] = []
    made._checkpoint = states.append
    threading.Timer(0.4, lambda: emulator.fault(times=0, **fault)).start()
    threading.Timer(0.8, made.kill).start()
    began = time.monotonic()
    finished = sum(run(made).values())
    assert time.monotonic() - began < 2.8
    assert states[-1]["counts"] == made.progress.counts
    assert finished == len(arrived(emulator))


def test_receipts_alone_are_enough_to_go_on(emulator: Emulator, tmp_path: Path) -> None:
    emulator.fault("delay", seconds=0.05, times=0)
    wanted = [*urls(400), "file:///x", *urls(10)]
    made = batch(emulator, wanted, receipts=Receipts(tmp_path))
    stop_after_some(made, emulator)
    first = run(made)
    assert 0 < sum(first.values()) < 400
    again = batch(emulator, wanted, receipts=Receipts(tmp_path), done=Done.of(Receipts(tmp_path)))
    assert run(again) == {"queued": 400, "failed": 1, "skipped": 10}
    assert sorted(arrived(emulator)) == sorted(urls(400))
    assert sorted(receipt["position"] for receipt in Receipts(tmp_path)) == list(range(411))
    assert "failed" not in {done.status.value for done in Done.of(Receipts(tmp_path)).values()}
    third = batch(emulator, wanted, done=Done.of(Receipts(tmp_path)))
    assert run(third) == {"queued": 400, "failed": 1, "skipped": 10}
    assert len(third.progress.failures) == 1
    assert len(arrived(emulator)) == 400
    assert "hunter" not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_a_manifest_that_has_grown_is_the_same_one(emulator: Emulator) -> None:
    made = batch(emulator, urls(100))
    run(made)
    assert run(batch(emulator, urls(150), progress=Progress.from_state(made.progress.to_state()))) == {"queued": 150}
    assert len(arrived(emulator)) == 150


def test_the_progress_is_stored_once_a_second_and_told_every_few(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_cloudstore.batch import run as module

    monkeypatch.setattr(module, "_REPORT_EVERY", 1.0)
    emulator.fault("delay", seconds=0.1, times=0)
    states: list[dict[str, Any]] = []
    lines: list[str] = []
    run(batch(emulator, urls(160), max_concurrency=5, checkpoint=states.append, tell=lines.append))
    assert 3 <= len(states) <= 12
    assert [state["watermark"] for state in states] == sorted(state["watermark"] for state in states)
    assert "of 160 URLs done" in lines[0]
    assert "s left" in lines[0]


def test_a_progress_that_cannot_be_stored_ends_the_batch_and_loses_no_receipt(emulator: Emulator, tmp_path: Path) -> None:
    emulator.fault("delay", seconds=0.05, times=0)

    def full(state: dict[str, Any]) -> None:
        raise OSError("no space left")

    made = batch(emulator, urls(2000), receipts=Receipts(tmp_path), checkpoint=full)
    with pytest.raises(OSError, match="no space left"):
        asyncio.run(made.run())
    assert 0 < made.progress.finished < 1000
    made._checkpoint = None
    made.save()
    assert len(list(Receipts(tmp_path))) == made.progress.finished


def test_a_slow_request_does_not_let_the_others_run_away(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_cloudstore.batch import run as module

    monkeypatch.setattr(module, "_AHEAD_AT_MOST", 50)
    emulator.fault("delay", seconds=1.0, times=1)
    made = batch(emulator, urls(300), max_concurrency=4)
    most = 0

    async def watch() -> None:
        nonlocal most
        running = asyncio.create_task(made.run())
        while not running.done():
            most = max(most, len(made.progress.ahead))
            await asyncio.sleep(0.005)
        await running

    asyncio.run(watch())
    assert made.progress.finished == 300
    assert 40 < most <= 60
