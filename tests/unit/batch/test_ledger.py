from __future__ import annotations

import json

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import FAILURES_REPORTED, Ledger
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.receipts import Status
from tests.unit.batch.folders import digest_of
from tests.unit.batch.whole_batch import counts


def surveyed(urls: list[str], **more: bool) -> tuple[Ledger, list[Entry]]:
    """A ledger that has counted a manifest, in which ``b`` was queued and ``u`` is unknown since an earlier try."""
    ledger, entries = Ledger(**more), list(list_manifest(urls)())
    ledger.note_earlier([(digest_of("u"), Status.UNKNOWN), (digest_of("b"), Status.QUEUED), (digest_of("b"), Status.UNKNOWN)])
    ledger.survey(entries)
    return ledger, entries


@pytest.mark.parametrize(
    ("outcome", "counted"), [(Status.QUEUED, "queued"), (Status.UNKNOWN, "unknown"), (Status.FAILED, "unknown")]
)
def test_an_unknown_upload_that_is_resent_stays_unknown_unless_it_is_queued(outcome: Status, counted: str) -> None:
    ledger, entries = surveyed(["u", "u", "b"], retry_unknown=True)
    assert counts(ledger) == {"queued": 1, "unknown": 1, "skipped": 1}
    assert [ledger.admit(entry) for entry in entries] == [True, False, False]
    ledger.record(entries[0], outcome, error="" if outcome is Status.QUEUED else "e")
    assert counts(ledger) == {"skipped": 1, **({"queued": 2} if counted == "queued" else {"queued": 1, "unknown": 1})}
    assert json.loads(ledger.drain_receipts()[0])["status"] == counted
    assert ledger.to_dict()["queued_earlier"] == 1


def test_the_first_failures_are_bounded_and_can_be_stored_even_if_a_line_is_not_utf_8() -> None:
    ledger, entries = surveyed([f"https://h/{number}" for number in range(FAILURES_REPORTED + 5)])
    for entry in entries:
        ledger.record(entry, Status.FAILED, url="caf\udce9".ljust(300, "u"), error="\ud800" + "e" * 900)
    assert [failure["line"] for failure in ledger.failures] == list(range(1, FAILURES_REPORTED + 1))
    json.dumps(ledger.failures, ensure_ascii=False).encode()
    first = ledger.failures[0]
    assert (first["url"], first["error"]) == (r"caf\udce9".ljust(205, "u"), r"\ud800" + "e" * 399)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Status.QUEUED, ""),
        (Status.FAILED, "batch upload: 1 failed of 1,002 URLs; the first, in line 2: HTTP 400."),
        (Status.UNKNOWN, "batch upload: 1 unknown of 1,002 URLs; the first, in line 2: HTTP 400."),
    ],
)
def test_no_url_may_fail_or_be_unknown(outcome: Status, error: str) -> None:
    ledger, entries = surveyed(["b", "a", *("b" * 1000)])
    ledger.record(entries[1], outcome, error="" if outcome is Status.QUEUED else "HTTP 400")
    ledger.close(None)
    assert str(ledger.error or "").partition("\n")[0] == error
    assert ("retry_unknown_outcome=True resends them" in str(ledger.error)) is (outcome is Status.UNKNOWN)


def test_the_error_of_a_batch_that_ended_early_counts_what_is_left_and_keeps_the_rest_of_it() -> None:
    ledger, entries = surveyed(["b", "a", "c"])
    ledger.record(entries[1], Status.FAILED, error="HTTP 400")
    ledger.close(exceptions.BatchInterruptedError("the task was terminated", operation="batch upload"))
    assert isinstance(ledger.error, exceptions.BatchInterruptedError)
    assert "the task was terminated.\n1 queued, 1 failed, 1 unsent of 3 URLs. " in str(ledger.error)
