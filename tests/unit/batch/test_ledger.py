from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.ledger import FAILURES_REPORTED, Ledger, Located, locate
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.outcomes import Status, digest_of
from airflow_provider_cloudstore.batch.state import Positions


def located(urls: list[Any], shard: tuple[int, int] | None = None) -> list[Located]:
    return list(locate(list_manifest(urls)(), shard))


def surveyed(urls: list[Any], ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger()
    for found in located(urls):
        ledger.survey(found)
    return ledger


def counts(ledger: Ledger) -> dict[str, int]:
    assert sum(ledger.count(status) for status in Status) == ledger.total
    return {status.value: ledger.count(status) for status in Status if ledger.count(status)}


def test_shards_split_a_manifest_by_url_and_count_positions_of_their_own() -> None:
    urls = [f"https://h/{number}" for number in range(300)] * 2
    shards = [located(urls, (number, 3)) for number in range(3)]
    assert sum(map(len, shards)) == 600
    sets = [{found.entry.url for found in shard} for shard in shards]
    assert set().union(*sets) == set(urls)
    assert sum(map(len, sets)) == 300
    assert all([found.position for found in shard] == list(range(len(shard))) for shard in shards)
    assert located(urls)[301].digest == digest_of("https://h/1")


def test_lines_without_a_url_are_told_apart() -> None:
    one, other = locate(iter([Entry(1, problem="x"), Entry(2, problem="x")]), None)
    assert one.digest != other.digest


@pytest.mark.parametrize("outcome", [Status.QUEUED, Status.UNKNOWN, Status.FAILED])
def test_a_duplicate_is_skipped_whatever_becomes_of_the_first_one(outcome: Status) -> None:
    urls = ["a", "a", "b", "a"]
    ledger = surveyed(urls)
    assert counts(ledger) == {"skipped": 2, "unsent": 2}
    sent = [found for found in located(urls) if ledger.admit(found)]
    assert [found.position for found in sent] == [0, 2]
    for found in sent:
        ledger.record(found, outcome, error="" if outcome is Status.QUEUED else "e")
    assert counts(ledger) == {outcome.value: 2, "skipped": 2}


@pytest.mark.parametrize("order", [["failed", "unknown", "queued"], ["queued", "unknown"], ["unknown", "queued", "failed"]])
def test_queued_wins_over_unknown_and_unknown_over_failed_in_any_order(order: list[str]) -> None:
    ledger = Ledger()
    for status in order:
        ledger.note_earlier(digest_of("a"), Status(status))
    ledger.note_earlier(digest_of("b"), Status.UNKNOWN)
    ledger.note_earlier(digest_of("b"), Status.FAILED)
    ledger.note_earlier(digest_of("c"), Status.FAILED)
    surveyed(["a", "b", "c"], ledger)
    assert counts(ledger) == {"queued": 1, "unknown": 1, "unsent": 1}
    assert [bool(ledger.admit(found)) for found in located(["a", "b", "c"])] == [False, False, True]
    assert [failure["error"] for failure in ledger.failures] == ["unknown since an earlier try"]


@pytest.mark.parametrize(
    ("outcome", "counted"), [(Status.QUEUED, "queued"), (Status.UNKNOWN, "unknown"), (Status.FAILED, "unknown")]
)
def test_an_unknown_upload_that_is_resent_stays_unknown_unless_it_is_queued(outcome: Status, counted: str) -> None:
    positions = Positions()
    positions.add(0, digest_of("a"))
    positions.set_unknown(0, True)
    ledger = Ledger(positions, retry_unknown=True)
    (found,) = located(["a"])
    ledger.survey(found, Status.UNKNOWN)
    assert counts(ledger) == {"unknown": 1}
    sent = ledger.admit(found)
    assert sent
    assert sent.may_be_queued
    ledger.record(sent, outcome, error="" if outcome is Status.QUEUED else "e")
    assert counts(ledger) == {counted: 1}
    assert positions.status(0) is Status(counted)


def test_positions_are_settled_by_what_is_queued_or_unknown_and_by_duplicates_of_what_is_queued() -> None:
    urls = ["queued", "failed", "unknown", "queued", "failed", "unknown", "unsent"]
    ledger = surveyed(urls, Ledger(positions := Positions()))
    for found in located(urls)[:6]:
        if sent := ledger.admit(found):
            ledger.record(sent, Status(sent.entry.url), error="" if sent.entry.url == "queued" else "e")
    assert [positions.status(at) for at in range(7)] == [Status.QUEUED, None, Status.UNKNOWN, Status.QUEUED, None, None, None]


def test_a_url_that_is_settled_further_down_needs_no_request_above() -> None:
    ledger = Ledger(Positions())
    for found, before in zip(located(["a", "b", "a"]), [None, None, Status.QUEUED], strict=True):
        ledger.survey(found, before)
    assert counts(ledger) == {"queued": 1, "skipped": 1, "unsent": 1}
    assert [bool(ledger.admit(found)) for found in located(["a", "b", "a"])] == [False, True, False]


def test_the_first_failures_are_reported_redacted_and_bounded() -> None:
    urls = [f"https://h/{number}" for number in range(FAILURES_REPORTED + 5)]
    ledger = surveyed(urls)
    for found in located(urls):
        ledger.record(found, Status.FAILED, url="u" * 300, error="e" * 900)
    assert [failure["line"] for failure in ledger.failures] == list(range(1, FAILURES_REPORTED + 1))
    assert ledger.failures[0] == {"line": 1, "url": "u" * 200, "status": "failed", "error": "e" * 400}


def test_receipts_are_drained_once() -> None:
    ledger = surveyed(["https://h/a"], Ledger(writes_receipts=True, try_number=7))
    ledger.record(located(["https://h/a"])[0], Status.QUEUED, url="https://h/a", file_id="f1", response={"id": 1})
    (line,) = ledger.drain_receipts()
    assert json.loads(line) == {
        "line": 1,
        "digest": digest_of("https://h/a").hex(),
        "url": "https://h/a",
        "status": "queued",
        "try": 7,
        "file_id": "f1",
        "response": {"id": 1},
    }
    assert ledger.drain_receipts() == []
    assert ledger.copy_positions() is None
