from __future__ import annotations

import json

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import FAILURES_REPORTED, Ledger
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.receipts import Status
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


# --- what the user is told


def ledger_of(**counts: int) -> Ledger:
    """A ledger with so many URLs of each outcome: ``queued=3, failed=1``, ``queued_earlier=2``."""
    ledger, wanted = Ledger(), list[str]()
    for outcome, count in counts.items():
        wanted += [f"https://h/{outcome}/{number}" for number in range(count)]
    earlier = [url for url in wanted if "/queued_earlier/" in url]
    ledger.note_earlier((digest_of(url), Status.QUEUED) for url in earlier)
    entries = list(list_manifest(wanted)())
    ledger.survey(entries)
    for entry in filter(ledger.admit, entries):
        outcome = str(entry.url).split("/")[3]
        if outcome != "unsent":
            ledger.record(entry, Status(outcome), url=f"{entry.url}?***", error="" if outcome == "queued" else "HTTP 400")
    return ledger


def test_the_counts_contain_what_earlier_tries_queued() -> None:
    ledger = ledger_of(queued=1200, queued_earlier=5, failed=1)
    assert ledger.describe(ledger.counts) == "1,205 queued, 1 failed of 1,206 URLs"
    assert ledger.to_dict()["queued_earlier"] == 5


@pytest.mark.parametrize(
    ("failed", "unknown", "error"),
    [
        (0, 0, ""),
        (1, 0, "batch upload: 1 failed of 6 URLs; the first, in line 6: HTTP 400."),
        (0, 1, "batch upload: 1 unknown of 6 URLs; the first, in line 6: HTTP 400."),
    ],
)
def test_no_url_may_fail_or_be_unknown(failed: int, unknown: int, error: str) -> None:
    report = ledger_of(queued=5, failed=failed, unknown=unknown)
    report.close(None)
    assert str(report.error or "").partition("\n")[0] == error
    assert ("retry_unknown_outcome=True resends them" in str(report.error)) is bool(unknown)


def test_the_error_of_a_batch_that_ended_early_counts_what_is_left_and_keeps_the_rest_of_it() -> None:
    early = exceptions.BatchInterruptedError("the task was terminated", operation="batch upload", ended_by="terminated")
    report = ledger_of(queued=1000, failed=2, unsent=5)
    report.close(early)
    error = report.error
    assert isinstance(error, exceptions.BatchInterruptedError)
    assert "the task was terminated.\n1,000 queued, 2 failed, 5 unsent of 1,007 URLs. " in str(error)
    assert error.ended_by == "terminated"
