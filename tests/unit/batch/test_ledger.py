from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.ledger import FAILURES_REPORTED, Ledger
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.recording import Status
from tests.unit.batch.folders import digest_of


def entries(urls: list[Any]) -> list[Entry]:
    return list(list_manifest(urls)())


def surveyed(urls: list[Any], ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger()
    ledger.survey(entries(urls))
    return ledger


def counts(ledger: Ledger) -> dict[str, int]:
    assert sum(ledger.counts.values()) == ledger.total
    return {status.value: count for status, count in ledger.counts.items() if count}


def test_a_duplicate_is_skipped_although_the_first_one_fails() -> None:
    urls = ["a", "a", "b", "a"]
    ledger = surveyed(urls)
    assert counts(ledger) == {"skipped": 2, "unsent": 2}
    sent = [entry for entry in entries(urls) if ledger.admit(entry)]
    assert [entry.line for entry in sent] == [1, 3]
    for entry in sent:
        ledger.record(entry, Status.FAILED, error="e")
    assert counts(ledger) == {"failed": 2, "skipped": 2}


@pytest.mark.parametrize("order", [["failed", "unknown", "queued"], ["queued", "unknown", "failed"]])
def test_queued_wins_over_unknown_and_unknown_over_failed_in_any_order(order: list[str]) -> None:
    ledger = Ledger()
    ledger.note_earlier((digest_of("a"), Status(status)) for status in order)
    ledger.note_earlier([(digest_of("b"), Status.UNKNOWN), (digest_of("b"), Status.FAILED), (digest_of("c"), Status.FAILED)])
    surveyed(["a", "b", "c"], ledger)
    assert counts(ledger) == {"queued": 1, "unknown": 1, "unsent": 1}
    assert [ledger.admit(entry) for entry in entries(["a", "b", "c"])] == [False, False, True]
    assert [failure["error"] for failure in ledger.failures] == ["unknown since an earlier try"]


@pytest.mark.parametrize(
    ("outcome", "counted"), [(Status.QUEUED, "queued"), (Status.UNKNOWN, "unknown"), (Status.FAILED, "unknown")]
)
def test_an_unknown_upload_that_is_resent_stays_unknown_unless_it_is_queued(outcome: Status, counted: str) -> None:
    ledger = Ledger(retry_unknown=True)
    ledger.note_earlier([(digest_of("a"), Status.UNKNOWN)])
    surveyed(["a", "a"], ledger)
    assert counts(ledger) == {"unknown": 1, "skipped": 1}
    assert [ledger.admit(entry) for entry in entries(["a", "a"])] == [True, False]
    ledger.record(entries(["a"])[0], outcome, error="" if outcome is Status.QUEUED else "e")
    assert counts(ledger) == {counted: 1, "skipped": 1}
    assert json.loads(ledger.drain_receipts()[0])["status"] == counted


def test_the_first_failures_are_bounded_and_can_be_stored_even_if_a_line_is_not_utf_8() -> None:
    ledger = surveyed(urls := [f"https://h/{number}" for number in range(FAILURES_REPORTED + 5)])
    for entry in entries(urls):
        ledger.record(entry, Status.FAILED, url="caf\udce9".ljust(300, "u"), error="\ud800" + "e" * 900)
    assert [failure["line"] for failure in ledger.failures] == list(range(1, FAILURES_REPORTED + 1))
    json.dumps(ledger.failures, ensure_ascii=False).encode()
    first = ledger.failures[0]
    assert (first["url"], first["error"]) == (r"caf\udce9".ljust(205, "u"), r"\ud800" + "e" * 399)


def receipt(status: Status, **told: Any) -> dict[str, Any]:
    ledger = surveyed(["https://h/a"], Ledger(7))
    ledger.record(entries(["https://h/a"])[0], status, url="https://h/a", **told)
    (line,) = ledger.drain_receipts()
    assert ledger.drain_receipts() == []
    return dict(json.loads(line))


def test_a_receipt_has_the_documented_fields() -> None:
    fields = {"line": 1, "digest": digest_of("https://h/a").hex(), "url": "https://h/a", "try": 7}
    queued = receipt(Status.QUEUED, file_id="f1", response={"id": "é"})
    assert queued == {**fields, "status": "queued", "file_id": "f1", "response": {"id": "é"}}
    assert receipt(Status.QUEUED) == {**fields, "status": "queued", "file_id": ""}
    assert receipt(Status.QUEUED, response=[])["response"] == []
    assert receipt(Status.UNKNOWN, error="lost") == {**fields, "status": "unknown", "error": "lost"}
