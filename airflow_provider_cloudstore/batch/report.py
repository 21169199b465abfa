"""What a batch tells its user: the lines of its log, its error and its XCom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.exceptions import BatchFailedError, CloudStoreError

log = logging.getLogger(__name__)

_PROGRESS_INTERVAL = 5.0
_CHECK_UNKNOWN = "Check in the service whether the unknown uploads arrived; retry_unknown_outcome=True resends them."


@dataclass(frozen=True, slots=True)
class Report:
    """How a try ended."""

    total: int
    counts: dict[Status, int]
    """URLs by status, of this try and earlier ones; they add up to the total."""
    queued_earlier: int
    failures: list[dict[str, Any]]
    """The first ones, redacted."""
    error: CloudStoreError | None

    def to_dict(self) -> dict[str, Any]:
        """The report as an XCom."""
        counts = {status.value: count for status, count in self.counts.items()}
        return {"total": self.total, **counts, "queued_earlier": self.queued_earlier, "failures": self.failures}

    def __str__(self) -> str:
        """The counts as a log line."""
        return f"{_enumerate(self.counts, self.total)} ({self.queued_earlier:,} queued by earlier tries)"


def conclude(ledger: Ledger, error: CloudStoreError | None) -> Report:
    """The report of a try that ended early because of an error, or at the end of the manifest."""
    counts = ledger.counts
    bad = {status: counts[status] for status in (Status.FAILED, Status.UNKNOWN)}
    if error:
        error = replace(error, advice=f"{_enumerate(counts, ledger.total)}. {error.what_to_do}")
    elif any(bad.values()):
        first = ledger.failures[0]
        reason = f"{_enumerate(bad, ledger.total)}; the first, in line {first['line']:,}: {first['error']}"
        advice = f"{BatchFailedError.hint} {_CHECK_UNKNOWN}" if bad[Status.UNKNOWN] else ""
        error = BatchFailedError(reason, operation="batch upload", advice=advice)
    return Report(ledger.total, counts, ledger.earlier[Status.QUEUED], ledger.failures, error)


def _enumerate(counts: Mapping[Status, int], total: int) -> str:
    found = ", ".join(f"{count:,} {status.value}" for status, count in counts.items() if count)
    return f"{found or 'none sent'} of {_urls(total)}"


def _urls(count: int) -> str:
    return f"{count:,} URL{'' if count == 1 else 's'}"


def plan(ledger: Ledger, place: str) -> str:
    """What the try is about to do, for the log."""
    known = f" ({ledger.earlier.total():,} settled by earlier tries)" if ledger.earlier else ""
    return f"A batch of {_urls(ledger.total)}{known}; receipts: {place or 'none'}"


async def report_progress(ledger: Ledger) -> None:
    """Log the counts every five seconds until cancelled, with the rate of the last five."""
    counts = ledger.counts
    while True:
        await asyncio.sleep(_PROGRESS_INTERVAL)
        before, counts = counts, ledger.counts
        rate = (before[Status.UNSENT] - counts[Status.UNSENT]) / _PROGRESS_INTERVAL
        log.info("%s; %s a second", _enumerate(counts, ledger.total), f"{rate:,.0f}")
