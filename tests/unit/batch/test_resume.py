"""What a try resumes from; what moved, is damaged or missing is an error before anything is sent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import receipts as receipts_module
from airflow_provider_cloudstore.batch import resume as resume_module
from airflow_provider_cloudstore.batch import state as state_module
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.tries import FORMAT, STATE_KEY
from airflow_provider_cloudstore.protocol import errors
from tests.unit.batch.conftest import MemoryState
from tests.unit.batch.folders import MemoryFolder
from tests.unit.batch.virtual import LOST, Answer, VirtualService
from tests.unit.batch.whole_batch import Batch, cause, counts, urls


def test_with_receipts_a_manifest_may_be_corrected_reordered_and_grow(folder: MemoryFolder) -> None:
    batch = Batch(["file:///x", *urls(50)], folder=folder)
    batch.run()
    batch.wanted = [*reversed(urls(60)), *urls(5)]
    report = batch.run()
    assert (counts(report), report.queued_earlier) == ({"queued": 60, "skipped": 5}, 50)
    assert batch.requests == 60


@pytest.mark.parametrize(
    "change",
    [
        lambda urls: urls[1:],
        lambda urls: urls[:-1],
        lambda urls: [urls[1], urls[0], *urls[2:]],
        lambda urls: [*urls[:7], "https://h/new", *urls[8:]],
        lambda urls: [],
        lambda urls: [*(Entry(line, url) for line, url in enumerate(urls[:9], 1)), Entry(10, problem="the line is not JSON")],
    ],
    ids=["first is gone", "last is gone", "exchanged", "replaced", "all are gone", "damaged"],
)
def test_without_receipts_a_settled_line_that_moved_or_changed_is_an_error_that_names_the_ways_out(
    state: MemoryState, change: Callable[[list[str]], list[Any]]
) -> None:
    batch = Batch(urls(10), state=state)
    batch.run()
    batch.wanted = change(urls(10))
    with pytest.raises(errors.BatchStoppedError, match="the manifest changed where it was already sent") as stopped:
        batch.run()
    assert stopped.value.permanent
    assert stopped.value.cause == "manifest"
    for way in ("nothing was sent", "Restore the manifest", "start a new DAG run", f"delete the key '{STATE_KEY}'", "`receipts`"):
        assert way in str(stopped.value)
    assert batch.requests == 10
    batch.wanted = [*urls(10), "https://h/new"]
    assert counts(batch.run()) == {"queued": 11}
    assert batch.requests == 11
    state.text = "null"  # the key is deleted
    batch.wanted = change(urls(10)) or urls(1)
    batch.run()
    assert batch.requests > 11


def test_a_failed_line_that_is_corrected_to_a_url_that_stands_elsewhere_is_not_sent_again(state: MemoryState) -> None:
    batch = Batch(["file:///x", *urls(5)], state=state)
    batch.run()
    batch.wanted = [urls(5)[3], *urls(5)]
    for _ in range(2):
        assert counts(batch.run()) == {"queued": 5, "skipped": 1}
    assert batch.requests == 5


def test_receipts_that_are_added_later_first_take_over_what_the_state_store_holds(
    state: MemoryState, folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_module, "_LINES_AT_ONCE", 7)
    monkeypatch.setattr(receipts_module, "PART_SIZE", 500)
    answers: dict[str, Answer] = {urls(50)[17]: 400, urls(50)[31]: LOST}
    service = VirtualService(lambda url, now: answers.get(url, 200))
    batch = Batch(urls(50), service, state=state)
    batch.run()
    batch.stores["folder"] = folder
    batch.wanted = [*reversed(urls(50))]
    with pytest.raises(errors.BatchStoppedError, match="the manifest changed"):
        batch.run()
    batch.wanted = urls(50)
    del answers[urls(50)[17]]
    report = batch.run()
    assert (counts(report), report.queued_earlier) == ({"queued": 49, "unknown": 1}, 48)
    assert batch.requests == 51
    assert "settled" not in state.get(STATE_KEY)
    lines = sorted(folder.receipts(), key=lambda line: line["line"])
    assert [line["line"] for line in lines] == list(range(1, 51))
    assert [line["line"] for line in lines if line["status"] != "queued"] == [32]
    assert all("url" in line and "hunter" not in line["url"] for line in lines)
    batch.wanted = [*reversed(urls(50))]
    assert counts(batch.run()) == {"queued": 49, "unknown": 1}
    assert (batch.requests, len(folder.receipts())) == (51, 50)


def test_what_is_taken_over_survives_a_crash_in_the_middle_of_it(state: MemoryState, folder: MemoryFolder) -> None:
    batch = Batch(urls(20), state=state)
    batch.run()

    def crash() -> None:
        if folder.files:  # the mark is there
            raise errors.ConfigurationError("crashed")

    folder.fails = crash
    batch.stores["folder"] = folder
    with pytest.raises(errors.ConfigurationError):
        batch.run()
    folder.fails = lambda: None
    assert batch.run().queued_earlier == batch.requests == 20


@pytest.mark.parametrize("later", ["none", "elsewhere", "emptied"])
def test_receipts_that_are_gone_are_an_error_as_often_as_the_task_is_cleared(
    state: MemoryState, folder: MemoryFolder, later: str
) -> None:
    batch = Batch(urls(5), state=state, folder=folder)
    batch.run()
    folder.files.clear()
    if later == "none":
        del batch.stores["folder"]
    elif later == "elsewhere":
        batch.stores["folder"] = MemoryFolder()
    for _ in range(2):
        with pytest.raises(errors.BatchStoppedError, match="kept the batch's progress in receipts, and") as stopped:
            batch.run()
        assert stopped.value.cause == "receipts"
        assert f"delete the key '{STATE_KEY}'" in str(stopped.value)
    assert batch.requests == 5
    state.text = "null"
    batch.run()
    assert batch.requests == 10


@pytest.mark.parametrize(
    "damage",
    [
        {"settled": "VPa!s"}, {"settled": {}}, {"settled": None}, {"unknown": None}, {"unknown": "x"}, {"digest": 5},
        {"digest": "zz"}, {"writer": "x"}, {"writer": None}, {"writer": {"number": 1, "format": FORMAT - 1}}, "x", 5, [], "",
    ],
)  # fmt: skip
def test_a_damaged_state_is_no_outage_and_nothing_is_sent(
    state: MemoryState, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    batch = Batch(urls(5), state=state)
    batch.run()
    state.text = json.dumps(state.get(STATE_KEY) | damage if isinstance(damage, dict) else damage)
    with pytest.raises(errors.BatchStoppedError, match="nothing was sent") as failed:
        batch.run()
    assert failed.value.permanent
    assert "retrying" not in caplog.text
    assert batch.requests == 5


def test_a_damaged_receipt_is_no_outage_and_nothing_is_sent(folder: MemoryFolder, caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch(urls(5), folder=folder)
    batch.run()
    part = next(name for name in folder.files if name.startswith("part-"))
    folder.files[part] = folder.files[part][:-9]
    with pytest.raises(errors.BatchStoppedError, match=f"line 5 of .*{part} is damaged; nothing more was sent"):
        batch.run()
    assert "retrying" not in caplog.text
    assert batch.requests == 5


def test_progress_that_no_longer_fits_stops_the_batch_asks_for_receipts_and_nothing_is_sent_twice(
    state: MemoryState, folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_ROOM", 150)
    bad = set(random.Random(1).sample(range(600), 200))
    wanted = [f"file:///{number}" if number in bad else url for number, url in enumerate(urls(600))]
    batch = Batch(wanted, state=state)
    first = batch.run(max_concurrency=4)
    assert cause(first) == "state"
    assert first.error
    assert first.error.permanent
    assert "Set `receipts` and clear the task: it takes over what is stored" in str(first.error)
    before = batch.requests
    assert 0 < before < 400
    assert cause(batch.run()) == "state"
    assert batch.requests == before
    batch.stores["folder"] = folder
    assert counts(batch.run()) == {"queued": 400, "failed": 200}
    assert batch.requests == 400
