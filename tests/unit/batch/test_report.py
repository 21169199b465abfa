"""What a batch tells its user."""

from __future__ import annotations

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.batch.report import conclude, plan
from tests.unit.batch.folders import digest_of


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


def test_the_plan_and_the_counts_as_a_line_tell_what_earlier_tries_queued() -> None:
    ledger = ledger_of(queued=1200, queued_earlier=5, failed=1)
    assert plan(ledger, "s3://b/r") == "A batch of 1,206 URLs (5 settled by earlier tries); receipts: s3://b/r"
    assert str(conclude(ledger, None)) == "1,205 queued, 1 failed of 1,206 URLs (5 queued by earlier tries)"


@pytest.mark.parametrize(
    ("failed", "unknown", "error"),
    [
        (0, 0, ""),
        (1, 0, "batch upload: 1 failed of 6 URLs; the first, in line 6: HTTP 400."),
        (0, 1, "batch upload: 1 unknown of 6 URLs; the first, in line 6: HTTP 400."),
    ],
)
def test_no_url_may_fail_or_be_unknown(failed: int, unknown: int, error: str) -> None:
    report = conclude(ledger_of(queued=5, failed=failed, unknown=unknown), None)
    assert str(report.error or "").partition("\n")[0] == error
    assert ("retry_unknown_outcome=True resends them" in str(report.error)) is bool(unknown)


def test_the_error_of_a_batch_that_ended_early_counts_what_is_left_and_keeps_the_rest_of_it() -> None:
    early = exceptions.BatchInterruptedError("the task was terminated", operation="batch upload", ended_by="terminated")
    error = conclude(ledger_of(queued=1000, failed=2, unsent=5), early).error
    assert isinstance(error, exceptions.BatchInterruptedError)
    assert "the task was terminated.\n1,000 queued, 2 failed, 5 unsent of 1,007 URLs. " in str(error)
    assert error.ended_by == "terminated"
