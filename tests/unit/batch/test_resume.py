"""What a try resumes from; what moved, is damaged or missing is an error before anything is sent."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cloudstore.batch import state as state_module
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.report import Report
from airflow_provider_cloudstore.batch.tries import FORMAT, STATE_KEY
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors

Urls = Callable[..., list[str]]
Run = Callable[[Any], Report]


def requests(emulator: Emulator) -> int:
    return int(emulator.state()["requests"].get("upload", 0))


@pytest.fixture
def plan(job: Any, run: Run) -> Callable[..., str]:
    """Run one try, and return the first line of its log."""

    def run_one(urls: list[Any], **more: Any) -> str:
        found: list[str] = []
        run(job(urls, report=found.append, **more))
        return found[0]

    return run_one


def test_a_plan_says_what_earlier_tries_finished(plan: Any, urls: Urls, state: Any, emulator: Emulator) -> None:
    emulator.fault("drop_after", times=2)
    assert plan(urls(9), store=state, requests_per_second=50) == (
        "A batch of 9 URLs: at most 16 requests in flight, at most 50 a second; progress is kept in Airflow's state store."
    )
    assert plan(urls(9), store=state, number=2).startswith("A batch of 9 URLs (7 queued, 2 unknown by earlier tries): at most")


def test_without_a_store_and_receipts_a_warning_says_that_a_retry_resends_all(
    plan: Any, urls: Urls, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan(urls(1)) == "A batch of 1 URL: at most 16 requests in flight."
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == "No state store and no `receipts`: a retry will resend every URL."


def test_with_receipts_a_manifest_may_be_corrected_reordered_and_grow(
    job: Any, run: Run, urls: Urls, folder: Any, emulator: Emulator
) -> None:
    run(job(["file:///x", *urls(50)], folder=folder))
    wanted = [*reversed(urls(60)), *urls(5)]
    report = run(job(wanted, folder=folder, number=2))
    assert (report.counts[Status.QUEUED], report.queued_earlier, report.counts[Status.SKIPPED]) == (60, 50, 5)
    assert requests(emulator) == 60


@pytest.mark.parametrize(
    "change",
    [
        lambda urls: urls[1:],
        lambda urls: urls[:-1],
        lambda urls: [urls[1], urls[0], *urls[2:]],
        lambda urls: ["https://h/new", *urls],
        lambda urls: [*urls[:7], "https://h/new", *urls[8:]],
        lambda urls: [],
        lambda urls: [*urls[:7], "file:///x", *urls[8:]],
        lambda urls: [*(Entry(line, url) for line, url in enumerate(urls[:9], 1)), Entry(10, problem="the line is not JSON")],
    ],
)
def test_without_receipts_a_settled_line_that_moved_or_changed_is_an_error_that_names_the_ways_out(
    job: Any, run: Run, urls: Urls, state: Any, emulator: Emulator, change: Callable[[list[str]], list[Any]]
) -> None:
    run(job(urls(10), store=state))
    with pytest.raises(errors.BatchStoppedError, match="the manifest changed where it was already sent") as stopped:
        run(job(change(urls(10)), store=state, number=2))
    assert stopped.value.permanent
    assert stopped.value.cause == "manifest"
    for way in ("nothing was sent", "Restore the manifest", "start a new DAG run", f"delete the key '{STATE_KEY}'", "`receipts`"):
        assert way in str(stopped.value)
    assert requests(emulator) == 10
    assert run(job([*urls(10), "https://h/new"], store=state, number=3)).counts[Status.QUEUED] == 11
    assert requests(emulator) == 11
    state.text = "null"  # the key is deleted
    run(job(change(urls(10)) or urls(1), store=state, number=4))
    assert requests(emulator) > 11


def test_a_failed_line_that_is_corrected_to_a_url_that_stands_elsewhere_is_not_sent_again(
    job: Any, run: Run, urls: Urls, state: Any, emulator: Emulator
) -> None:
    run(job(["file:///x", *urls(5)], store=state))
    for number in (2, 3):
        report = run(job([urls(5)[3], *urls(5)], store=state, number=number))
        assert (report.counts[Status.QUEUED], report.counts[Status.SKIPPED]) == (5, 1)
    assert requests(emulator) == 5


def test_receipts_that_are_added_later_first_take_over_what_the_state_store_holds(
    job: Any, run: Run, urls: Urls, state: Any, folder: Any, emulator: Emulator
) -> None:
    emulator.fault("drop_after", times=1)
    emulator.fault("status", status=400, times=1)
    run(job(urls(20), store=state, max_concurrency=1))
    with pytest.raises(errors.BatchStoppedError, match="the manifest changed"):
        run(job([*reversed(urls(20))], store=state, folder=folder, number=2))
    report = run(job(urls(20), store=state, folder=folder, number=3))
    assert (report.counts[Status.QUEUED], report.counts[Status.UNKNOWN], report.queued_earlier) == (19, 1, 18)
    assert requests(emulator) == 21
    assert "settled" not in state.get(STATE_KEY)
    by_status = {receipt["status"] for receipt in folder.receipts()}
    assert by_status == {"queued", "unknown"}
    assert all("url" in receipt and "hunter" not in receipt["url"] for receipt in folder.receipts())
    again = run(job([*reversed(urls(20))], store=state, folder=folder, number=4))
    assert (again.queued_earlier, requests(emulator)) == (19, 21)


def test_what_is_taken_over_survives_a_crash_in_the_middle_of_it(
    job: Any, run: Run, urls: Urls, state: Any, folder: Any, emulator: Emulator
) -> None:
    run(job(urls(20), store=state))

    def crash() -> None:
        if folder.files:  # the mark is there
            raise errors.ConfigurationError("crashed")

    folder.fails = crash
    with pytest.raises(errors.ConfigurationError):
        run(job(urls(20), store=state, folder=folder, number=2))
    folder.fails = lambda: None
    assert run(job(urls(20), store=state, folder=folder, number=3)).queued_earlier == 20
    assert requests(emulator) == 20


@pytest.mark.parametrize("later", ["none", "elsewhere", "emptied"])
def test_receipts_that_are_gone_are_an_error_as_often_as_the_task_is_cleared(
    job: Any, run: Run, urls: Urls, state: Any, folder: Any, emulator: Emulator, later: str
) -> None:
    run(job(urls(5), store=state, folder=folder))
    folder.files.clear()
    kept = {} if later == "none" else {"folder": type(folder)() if later == "elsewhere" else folder}
    for number in (2, 3):
        with pytest.raises(errors.BatchStoppedError, match="kept the batch's progress in receipts, and") as stopped:
            run(job(urls(5), store=state, number=number, **kept))
        assert stopped.value.cause == "receipts"
        assert f"delete the key '{STATE_KEY}'" in str(stopped.value)
    assert requests(emulator) == 5
    state.text = "null"
    run(job(urls(5), store=state, number=4, **kept))
    assert requests(emulator) == 10


@pytest.mark.parametrize("keep", ["state", "receipts"])
@pytest.mark.parametrize("version", [None, FORMAT - 1, FORMAT + 1, str(FORMAT)])
def test_progress_of_another_format_is_an_error_and_nothing_is_sent(
    job: Any, run: Run, urls: Urls, state: Any, folder: Any, emulator: Emulator, keep: str, version: Any
) -> None:
    kept = {"store": state} if keep == "state" else {"folder": folder}
    run(job(urls(5), **kept))
    if keep == "state":
        stored = state.get(STATE_KEY)
        state.text = json.dumps(stored | {"writer": stored["writer"] | {"format": version}})
    else:
        (mark,) = [name for name in folder.files if name.startswith("batch-")]
        folder.files[mark] = json.dumps(json.loads(folder.files[mark]) | {"format": version}).encode()
    with pytest.raises(errors.BatchStoppedError, match="in a format that this release does not read; nothing was sent"):
        run(job(urls(5), number=2, **kept))
    assert requests(emulator) == 5


@pytest.mark.parametrize(
    "damage",
    [
        {"settled": "VPa!s"}, {"settled": {}}, {"settled": None}, {"unknown": None}, {"unknown": "x"}, {"digest": 5},
        {"digest": "zz"}, {"writer": "x"}, {"writer": None}, {"writer": {"number": "1"}}, "x", 5, [], "",
    ],
)  # fmt: skip
def test_a_damaged_state_is_no_outage_and_nothing_is_sent(
    job: Any, run: Run, urls: Urls, state: Any, emulator: Emulator, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    run(job(urls(5), store=state))
    state.text = json.dumps(state.get(STATE_KEY) | damage if isinstance(damage, dict) else damage)
    with pytest.raises(errors.BatchStoppedError, match="nothing was sent") as failed:
        run(job(urls(9), store=state, number=2))
    assert failed.value.permanent
    assert "retrying" not in caplog.text
    assert requests(emulator) == 5


def test_a_damaged_receipt_is_no_outage_and_nothing_is_sent(
    job: Any, run: Run, urls: Urls, folder: Any, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    run(job(urls(5), folder=folder))
    part = next(name for name in folder.files if name.startswith("part-"))
    folder.files[part] = folder.files[part][:-9]
    with pytest.raises(errors.BatchStoppedError, match=f"line 5 of .*{part} is damaged; nothing more was sent"):
        run(job(urls(9), folder=folder, number=2))
    assert "retrying" not in caplog.text
    assert requests(emulator) == 5


def test_progress_that_no_longer_fits_stops_the_batch_asks_for_receipts_and_nothing_is_sent_twice(
    job: Any, run: Run, urls: Urls, state: Any, folder: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_ROOM", 150)
    bad = set(random.Random(1).sample(range(600), 200))
    wanted = [f"file:///{number}" if number in bad else url for number, url in enumerate(urls(600))]
    emulator.fault("delay", seconds=0.05, times=0)
    first = run(job(wanted, store=state, max_consecutive_failures=None))
    assert isinstance(first.error, errors.BatchStoppedError)
    assert (first.error.cause, first.error.permanent) == ("state", True)
    assert "Set `receipts` and clear the task: it takes over what is stored" in str(first.error)
    assert 0 < first.counts[Status.QUEUED] < 400
    before = requests(emulator)
    again = run(job(wanted, store=state, number=2))
    assert isinstance(again.error, errors.BatchStoppedError)
    assert requests(emulator) == before
    last = run(job(wanted, store=state, folder=folder, number=3))
    assert (last.counts[Status.QUEUED], last.counts[Status.FAILED]) == (400, 200)
    assert requests(emulator) == 400


def test_an_empty_manifest_is_refused_unless_it_is_allowed_but_an_empty_shard_is_not(
    job: Any, run: Run, urls: Urls, emulator: Emulator
) -> None:
    with pytest.raises(errors.InvalidInputError, match="holds no URL: set allow_empty=True"):
        run(job([], allow_empty=False))
    assert run(job([], allow_empty=True)).total == 0
    totals = [run(job(urls(1), shard=(number, 2), allow_empty=False)).total for number in range(2)]
    assert sorted(totals) == [0, 1]


def test_after_an_upload_is_lost_on_a_kept_alive_connection_each_upload_opens_its_own(
    job: Any, run: Run, urls: Urls, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.fault("delay", seconds=0.01, times=5)
    emulator.fault("drop_after", times=1)
    report = run(job(urls(20), max_concurrency=1))
    assert (report.counts[Status.QUEUED], report.counts[Status.UNKNOWN]) == (19, 1)
    assert emulator.state()["connections"]["opened"] == 1 + 14
    assert caplog.text.count("from now on each upload opens a connection of its own") == 1
