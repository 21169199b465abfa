"""What a batch tells its user: the lines of its log, its error and its XCom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.batch.sending import Options
from airflow_provider_cloudstore.batch.throttle import Throttle
from airflow_provider_cloudstore.exceptions import BatchFailedError, CloudStoreError

log = logging.getLogger(__name__)

_PROGRESS_INTERVAL = 5.0
_CHECK_UNKNOWN = "Check in the service whether the unknown uploads arrived; retry_unknown_outcome=True resends them."


@dataclass(frozen=True, slots=True)
class Report:
    """How a try ended.

    :param counts: URLs by status, of this try and earlier ones; they add up to the total.
    :param queued_earlier: those that earlier tries queued.
    :param failures: the first failures, redacted.
    :param error: why the batch did not succeed.
    """

    total: int
    counts: dict[Status, int]
    queued_earlier: int
    failures: list[dict[str, Any]]
    error: CloudStoreError | None

    def to_dict(self) -> dict[str, Any]:
        """The report as an XCom."""
        counts = {status.value: count for status, count in self.counts.items()}
        return {"total": self.total, **counts, "queued_earlier": self.queued_earlier, "failures": self.failures}

    def __str__(self) -> str:
        """The counts as a log line."""
        return f"{_enumerate(self.counts)} of {_urls(self.total)} ({self.queued_earlier:,} queued by earlier tries)"


def conclude(ledger: Ledger, error: CloudStoreError | None, allowed_failures: int, place: str) -> Report:
    """The report of a try.

    :param error: why it ended early, if it did.
    :param allowed_failures: as many URLs may fail.
    :param place: the receipts' folder, if there is one.
    """
    counts = {status: ledger.count(status) for status in Status}
    failed, unknown = counts[Status.FAILED], counts[Status.UNKNOWN]
    if error:
        error = replace(error, advice=f"Of {_urls(ledger.total)}: {_enumerate(counts)}. {error.advice or error.hint}")
    elif unknown or failed > allowed_failures:
        bad = _enumerate({Status.FAILED: failed, Status.UNKNOWN: unknown})
        where = f"the receipts in {place} list all" if place else "the XCom lists the first ones"
        advice = " ".join([BatchFailedError.hint] * bool(failed) + [_CHECK_UNKNOWN] * bool(unknown))
        reason = f"of {_urls(ledger.total)} {bad}; {_first(ledger)}; {where}"
        error = BatchFailedError(reason, operation="batch upload", advice=advice)
    elif failed:
        log.warning("%s failed, which allowed_failures=%d permits; %s", _urls(failed), allowed_failures, _first(ledger))
    return Report(ledger.total, counts, ledger.earlier[Status.QUEUED], ledger.failures, error)


def _first(ledger: Ledger) -> str:
    first = ledger.failures[0]
    about = first["error"] if first["url"] in first["error"] else f"{first['error']}, {first['url']}"
    return f"the first, in line {first['line']:,}: {about}"


def _enumerate(counts: dict[Status, int]) -> str:
    return ", ".join(f"{count:,} {status.value}" for status, count in counts.items() if count) or "none sent"


def _urls(count: int) -> str:
    return f"{count:,} URL{'' if count == 1 else 's'}"


def plan(ledger: Ledger, options: Options, place: str) -> str:
    """What the try is about to do, for the log."""
    known = {status: ledger.earlier[status] for status in Status if ledger.earlier[status]}
    before = f" ({_enumerate(known)} by earlier tries)" if known else ""
    rate = f", at most {options.requests_per_second:,g} a second" if options.requests_per_second else ""
    kept = f"; receipts in {place}" if place else ""
    return f"A batch of {_urls(ledger.total)}{before}: at most {options.max_concurrency:,} requests in flight{rate}{kept}."


async def report_progress(ledger: Ledger, throttle: Throttle, report: Callable[[str], None]) -> None:
    """Log the progress every five seconds until cancelled, with the rate of the last five and the time left at that rate."""
    done = ledger.finished
    while True:
        await asyncio.sleep(_PROGRESS_INTERVAL)
        before, done = done, ledger.finished
        rate = (done - before) / _PROGRESS_INTERVAL
        left = f", about {(ledger.total - done) / rate:,.0f} s left" if rate else ""
        waiting = throttle.waits_for_service
        now = f"; {waiting}" if waiting else f", {rate:,.0f} a second{left}"
        failed, unknown = ledger.count(Status.FAILED), ledger.count(Status.UNKNOWN)
        report(f"{done:,} of {_urls(ledger.total)} done, {failed:,} failed, {unknown:,} unknown{now}")
