from __future__ import annotations

import json

import pytest

from airflow_provider_cloudstore.batch.ledger import FAILURES_REPORTED, Ledger
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.recording import Status
from tests.unit.batch.folders import digest_of
from tests.unit.batch.whole_batch import counts


def entries(urls: list[str]) -> list[Entry]:
    return list(list_manifest(urls)())


@pytest.mark.parametrize(
    ("outcome", "counted"), [(Status.QUEUED, "queued"), (Status.UNKNOWN, "unknown"), (Status.FAILED, "unknown")]
)
def test_an_unknown_upload_that_is_resent_stays_unknown_unless_it_is_queued(outcome: Status, counted: str) -> None:
    ledger = Ledger(retry_unknown=True)
    ledger.note_earlier([(digest_of("a"), Status.UNKNOWN), (digest_of("b"), Status.QUEUED), (digest_of("b"), Status.UNKNOWN)])
    wanted = entries(["a", "a", "b"])
    ledger.survey(wanted)
    assert counts(ledger) == {"queued": 1, "unknown": 1, "skipped": 1}
    assert [ledger.admit(entry) for entry in wanted] == [True, False, False]
    ledger.record(wanted[0], outcome, error="" if outcome is Status.QUEUED else "e")
    assert counts(ledger) == {"skipped": 1, **({"queued": 2} if counted == "queued" else {"queued": 1, "unknown": 1})}
    assert json.loads(ledger.drain_receipts()[0])["status"] == counted


def test_the_first_failures_are_bounded_and_can_be_stored_even_if_a_line_is_not_utf_8() -> None:
    wanted, ledger = entries([f"https://h/{number}" for number in range(FAILURES_REPORTED + 5)]), Ledger()
    ledger.survey(wanted)
    for entry in wanted:
        ledger.record(entry, Status.FAILED, url="caf\udce9".ljust(300, "u"), error="\ud800" + "e" * 900)
    assert [failure["line"] for failure in ledger.failures] == list(range(1, FAILURES_REPORTED + 1))
    json.dumps(ledger.failures, ensure_ascii=False).encode()
    first = ledger.failures[0]
    assert (first["url"], first["error"]) == (r"caf\udce9".ljust(205, "u"), r"\ud800" + "e" * 399)
