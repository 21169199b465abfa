"""What a batch tells its user."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.batch.ledger import Ledger, locate
from airflow_provider_cloudstore.batch.manifest import list_manifest
from airflow_provider_cloudstore.batch.outcomes import Status, digest_of
from airflow_provider_cloudstore.batch.report import Report, conclude, plan, report_progress
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.batch.throttle import FAILURES_TO_CLOSE, Throttle
from airflow_provider_cloudstore.protocol import errors
from tests.unit.batch.virtual import in_virtual_thread, run_virtually

CORRECT = "Correct what failed, then clear the task: with receipts or Airflow's state store, it resends the failed URLs only."
CHECK = "Check in the service whether the unknown uploads arrived"


def ledger_of(**counts: int) -> Ledger:
    """A ledger with so many URLs of each outcome: ``queued=3, failed=1``, ``queued_earlier=2``."""
    ledger, wanted = Ledger(), list[str]()
    for outcome, count in counts.items():
        wanted += [f"https://h/{outcome}/{number}" for number in range(count)] if outcome != "skipped" else []
    for number in range(counts.get("queued_earlier", 0)):
        ledger.note_earlier(digest_of(f"https://h/queued_earlier/{number}"), Status.QUEUED)
    for number in range(counts.get("unknown_earlier", 0)):
        ledger.note_earlier(digest_of(f"https://h/unknown_earlier/{number}"), Status.UNKNOWN)
    wanted += wanted[:1] * counts.get("skipped", 0)
    for found in locate(list_manifest(wanted)(), None):
        ledger.survey(found)
    for found in locate(list_manifest(wanted)(), None):
        if sent := ledger.admit(found):
            outcome = str(sent.entry.url).split("/")[3]
            if outcome != "unsent":
                error = "" if outcome == "queued" else "HTTP 400"
                ledger.record(sent, Status(outcome), url=f"{sent.entry.url}?***", error=error)
    return ledger


def concluded(
    ledger: Ledger,
    error: errors.CloudStoreError | None = None,
    allowed: int = 0,
    receipts: str = "",
) -> Report:
    return conclude(ledger, error, Options(allowed_failures=allowed), receipts)


def reason(report: Report) -> str:
    assert report.error
    return report.error.reason


# --- the counts


def test_the_xcom_counts_every_url_once_and_lists_the_first_failures() -> None:
    ledger = ledger_of(queued=3, failed=2, unknown=1, unsent=4, queued_earlier=5, skipped=2)
    found = concluded(ledger).to_dict()
    failures = found.pop("failures")
    assert found == {
        "total": 17,
        "queued": 8,
        "failed": 2,
        "unknown": 1,
        "skipped": 2,
        "unsent": 4,
        "queued_earlier": 5,
    }
    assert sum(found[status.value] for status in Status) == found["total"]
    assert [failure["line"] for failure in failures] == [4, 5, 6]
    assert failures[0] == {"line": 4, "url": "https://h/failed/0?***", "status": "failed", "error": "HTTP 400"}


def test_the_counts_as_a_line_tell_this_try_from_earlier_ones() -> None:
    line = str(concluded(ledger_of(queued=1200, queued_earlier=5, failed=1)))
    assert line == ("1,205 of 1,206 URLs queued (1,200 in this try, 5 earlier), 1 failed, 0 unknown, 0 skipped, 0 unsent")


# --- how it ended


def test_the_error_of_one_failed_url_says_once_what_happened_and_only_what_applies() -> None:
    report = concluded(ledger_of(queued=9, failed=1))
    assert isinstance(report.error, errors.BatchFailedError)
    assert str(report.error) == (
        "batch upload: of 10 URLs 1 failed; the first, in line 10: HTTP 400, https://h/failed/0?***; "
        f"the XCom lists the first ones.\n{CORRECT}"
    )
    assert report.error.operation == "batch upload"


def test_unknown_uploads_are_named_with_what_to_do_about_them() -> None:
    error = concluded(ledger_of(queued=1, unknown=2)).error
    assert error
    assert error.reason.startswith("of 3 URLs 2 unknown, which may have been queued; the first, in line 2: HTTP 400")
    assert error.advice.startswith(CHECK)
    assert CORRECT not in error.advice
    both = concluded(ledger_of(failed=3, unknown=2)).error
    assert both
    assert both.reason.startswith("of 5 URLs 3 failed and 2 unknown, which may have been queued; ")
    assert both.advice.startswith(f"{CORRECT} {CHECK}")


@pytest.mark.parametrize(
    ("failed", "unknown", "allowed", "fails"),
    [(0, 0, 0, False), (1, 0, 0, True), (2, 0, 2, False), (3, 0, 2, True), (0, 1, 9, True), (1, 1, 9, True)],
)
def test_as_many_urls_may_fail_as_allowed_but_none_may_be_unknown(
    failed: int, unknown: int, allowed: int, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        report = concluded(ledger_of(queued=5, failed=failed, unknown=unknown), allowed=allowed)
    assert (report.error is not None) is fails
    warning = "2 URLs failed, which allowed_failures=2 permits; the first, in line 6: HTTP 400, https://h/failed/0?***"
    assert caplog.messages == ([warning] if failed == 2 else [])


def test_unknown_uploads_of_earlier_tries_fail_the_batch_as_well() -> None:
    report = concluded(ledger_of(queued=1, unknown_earlier=1), allowed=5)
    assert isinstance(report.error, errors.BatchFailedError)
    assert "unknown since an earlier try" in report.error.reason


def test_the_error_of_a_batch_that_ended_early_counts_what_is_left_and_keeps_the_rest_of_it() -> None:
    early = errors.BatchInterruptedError("the task was terminated", operation="batch upload", cause="terminated", retry_after=3)
    report = concluded(ledger_of(queued=1000, failed=2, unsent=5), early)
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert "the task was terminated, with Retry-After: 3 s.\nOf 1,007 URLs: 1,000 queued, 2 failed, 5 unsent. " in str(
        report.error
    )
    assert (report.error.cause, report.error.retry_after) == ("terminated", 3)
    assert early.reason == "the task was terminated"
    assert "Of 0 URLs: none sent. " in str(concluded(ledger_of(), early).error)


def test_a_batch_never_succeeds_with_urls_that_were_not_sent() -> None:
    report = concluded(ledger_of(queued=3, unsent=2))
    assert isinstance(report.error, errors.BatchInterruptedError)
    assert "Of 5 URLs: 3 queued, 2 unsent. " in str(report.error)


# --- the plan


def test_a_plan_says_how_many_urls_how_fast_and_where_progress_is_kept() -> None:
    assert plan(ledger_of(unsent=1), Options(), "") == "A batch of 1 URL: at most 16 requests in flight."
    ledger = ledger_of(unsent=1500, queued_earlier=20, unknown_earlier=1)
    options = Options(max_concurrency=1000, requests_per_second=2.5)
    assert plan(ledger, options, "Airflow's state store") == (
        "A batch of 1,521 URLs (20 queued, 1 unknown by earlier tries): at most 1,000 requests in flight, at most 2.5 a second; "
        "progress is kept in Airflow's state store."
    )


# --- progress


class Progress:
    """A batch of 1,000 URLs, 10 of them duplicates and 90 queued earlier, that finishes ten a second except in outages."""

    def __init__(self) -> None:
        self.lines = list[tuple[float, str]]()
        self.ledger = ledger_of(unsent=900, queued_earlier=90, skipped=10)
        self.todo = list(locate(list_manifest([f"https://h/unsent/{n}" for n in range(900)])(), None))

    async def run(self, seconds: int, outage: range = range(0)) -> None:
        loop = asyncio.get_running_loop()
        throttle = Throttle(Lease([], 300, loop.time, in_virtual_thread), None)
        reporting = asyncio.create_task(
            report_progress(self.ledger, throttle, lambda line: self.lines.append((loop.time(), line)))
        )
        await asyncio.sleep(0.5)
        for second in range(seconds):
            if second == outage.start and outage:
                await self.fail(throttle)
            if second == outage.stop and outage:
                await throttle.acquire()
                throttle.record_success()
            for found in [] if second in outage else [self.todo.pop(0) for _ in range(10)]:
                self.ledger.record(found, Status.QUEUED if found.position else Status.FAILED, error="" if found.position else "e")
            await asyncio.sleep(1)
        reporting.cancel()

    @staticmethod
    async def fail(throttle: Throttle) -> None:
        for _ in range(FAILURES_TO_CLOSE):
            await throttle.acquire()
        for _ in range(FAILURES_TO_CLOSE):
            throttle.record_failure(errors.PermissionDeniedError("HTTP 403"))


def test_progress_is_logged_every_five_seconds_with_the_current_speed_and_the_time_left() -> None:
    progress = Progress()
    run_virtually(progress.run(21))
    assert [moment for moment, _ in progress.lines] == [5, 10, 15, 20]
    assert progress.lines[0][1] == "150 of 1,000 URLs done, 1 failed, 0 unknown, 10 a second, about 85 s left"
    assert progress.lines[3][1] == "300 of 1,000 URLs done, 1 failed, 0 unknown, 10 a second, about 70 s left"


def test_an_outage_is_named_in_place_of_a_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: asyncio.get_running_loop().time())
    progress = Progress()
    run_virtually(progress.run(90, range(10, 60)))
    lines = dict(progress.lines)
    assert lines[50] == (
        "200 of 1,000 URLs done, 1 failed, 0 unknown; waiting for the service since 00:00:10 until at most 00:15:00 UTC"
    )
    last = lines[max(lines)]
    assert ", 10 a second, about " in last
    assert "waiting" not in last
