"""Sends the uploads concurrently, each when the throttle allows it, and decides when the batch ends early."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.receipts import Status
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.retries import Retries
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.results import RemoteUpload

log = logging.getLogger(__name__)

_LATENESS = 0.01  # seconds by which a wait may end late; the next wait is shorter, so that the rate is kept
_MIN_PAUSE = 1.0  # seconds between requests while the service fails, and after a 429, which may not name a time
_MAX_PAUSE = 300.0  # longest pause in seconds that the service may ask for
_OUTAGE_LIMIT = 60.0  # seconds since the first of the failures without a success between; then Airflow's retry resumes the batch
_LINES_AT_ONCE = 20  # lines of the manifest after which other tasks of the event loop may run
_LINES_PER_MESSAGE = 1_000  # lines of the manifest for each message about the progress in the log
_TOKEN_REFUSALS = 2  # refusals without a success between that end the batch; a single refusal may be due to a token rotation


class BatchEnded(Exception):
    """Raised in place of sending a request after the batch has ended."""


class Throttle:
    """Admits a batch's requests while the lease is valid, at the given rate, outside pauses, and ever more slowly on failures.

    :param lease: the permission to send at all; the code that renews it calls :meth:`wake`.
    """

    def __init__(self, lease: Lease, requests_per_second: float | None) -> None:
        self._lease = lease
        self._rate_interval = 1 / requests_per_second if requests_per_second else 0.0
        self._time = asyncio.get_running_loop().time
        self._last_slot = self._time() - self._rate_interval
        self._paused_until = 0.0
        self._failing_since: float | None = None
        self._has_ended = False
        self.error: CloudStoreError | None = None
        """Why the batch ended early."""
        self._turn = asyncio.Lock()  # one task waits for the next slot, and the others wait for that task
        self._changed = asyncio.Event()

    async def acquire(self) -> None:
        """Wait until the next request may be sent; raise :class:`BatchEnded` if the batch has ended."""
        async with self._turn:
            while (delay := self._delay()) is None or delay > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
            self._last_slot = max(self._last_slot + self._interval, self._time() - _LATENESS)

    @property
    def _interval(self) -> float:
        """Seconds between two requests; while the service fails, each interval is twice as long as the one before."""
        if self._failing_since is None:
            return self._rate_interval
        return max(self._rate_interval, _MIN_PAUSE, self._last_slot - self._failing_since)

    def _delay(self) -> float | None:
        """Return the seconds until a request may be sent, as far as known; None if only a new lease allows sending."""
        if self._has_ended:
            raise BatchEnded
        if not self._lease.is_valid:
            return None
        return max(self._last_slot + self._interval, self._paused_until) - self._time()

    def wake(self) -> None:
        """Wake the waiting task, so that it checks again whether it may send."""
        self._changed.set()

    def end(self, error: CloudStoreError | None = None) -> None:
        """End the batch: waiting tasks raise :class:`BatchEnded`. Only the first error is kept."""
        self.error = self.error or error
        self._has_ended = True
        self.wake()

    def record_success(self) -> None:
        """Record that the service works."""
        self._failing_since = None
        self.wake()

    def record_failure(self, error: CloudStoreError) -> None:
        """Record that a request failed. A service that rejects the URL or the token counts as working."""
        if not (error.retried or error.may_have_effect):
            self.record_success()
            return
        is_limit = isinstance(error, exceptions.RateLimitError)
        pause = max(_MIN_PAUSE, error.retry_after or 0.0) if is_limit else 0.0
        now = self._time()
        self._paused_until = max(self._paused_until, now + pause)
        if self._failing_since is None:
            self._failing_since = now + pause  # the pause that the service asks for does not count as an outage
        if now - self._failing_since >= _OUTAGE_LIMIT or pause > _MAX_PAUSE:
            what = f"the service accepts no uploads; its last response: {error.reason}"
            self.end(_interrupted(what, error))
        self.wake()


def _interrupted(reason: str, error: CloudStoreError) -> exceptions.BatchInterruptedError:
    """Build the error with which Airflow retries the batch, whatever the last failure was."""
    return exceptions.BatchInterruptedError(
        reason,
        operation="batch upload",
        status=error.status,
        retry_after=error.retry_after,
        message=error.message,
        advice=f"{error.advice} {exceptions.BatchInterruptedError.default_advice}",
    )


@dataclass(frozen=True, slots=True)
class Options:
    """How a batch is sent: parameters of ``RemoteUrlBatchUploadOperator``."""

    max_concurrency: int = 16
    requests_per_second: float | None = None
    max_consecutive_failures: int | None = None
    retry_unknown_outcome: bool = False
    parameters: Mapping[str, str] | None = None


@dataclass(eq=False, repr=False)
class Sender:
    """The workers of a batch, which share one reading of the manifest."""

    client: AsyncClient
    throttle: Throttle
    ledger: Ledger
    entries: Iterator[Entry]
    options: Options
    _token_refused: list[Entry] = field(default_factory=list, init=False)
    """Entries to send again with a new token."""
    _refusals: int = field(default=0, init=False)
    """Uploads in a row that the service refused."""
    _token_refusals: int = field(default=0, init=False)

    async def run(self) -> None:
        """Send until nothing is left or an error ends the batch, then wait for the requests in flight."""
        workers = [asyncio.create_task(self._work()) for _ in range(self.options.max_concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            self.throttle.end()
            await asyncio.wait(workers)

    async def _work(self) -> None:
        try:
            while (entry := await self._next()) is not None:
                await self._send(entry)
        except BatchEnded:
            return
        except CloudStoreError as error:
            self.throttle.end(error)

    async def _next(self) -> Entry | None:
        """The next entry to send, or None if nothing is left."""
        if self._token_refused:
            return self._token_refused.pop()
        for entry in self.entries:
            if entry.line % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)  # so that a kill is noticed while millions of entries are skipped or have no URL
            if entry.line % _LINES_PER_MESSAGE == 0:
                log.info("%s", self.ledger.describe(self.ledger.counts))
            if self.ledger.admit(entry):
                return entry
        return None

    async def _send(self, entry: Entry) -> None:
        if entry.problem:
            self.ledger.record(entry, Status.FAILED, error=entry.problem)
            return
        opted_in = self.options.retry_unknown_outcome
        try:
            upload = UploadFromUrl(self.client.settings, entry.url, self.options.parameters, retry_unknown_outcome=opted_in)
        except exceptions.InvalidInputError as error:
            self.ledger.record(entry, Status.FAILED, url=redact_url(str(entry.url)), error=error.reason)
            return
        outcome = await self._outcome(upload)
        if isinstance(outcome, CloudStoreError):
            self._record_failure(entry, outcome)
            return
        self.ledger.record(entry, Status.QUEUED, url=outcome.url, file_id=outcome.file_id, response=outcome.response)
        self._refusals = self._token_refusals = 0

    async def _outcome(self, upload: UploadFromUrl) -> RemoteUpload | CloudStoreError:
        """Send an upload until it ends. A failure without effect is not counted: the throttle decides when the batch gives up."""
        retries, doubt = Retries(self.client.settings), None
        while True:
            try:
                result = await self.client.perform(upload, max_attempts=1, permit=self.throttle.acquire)
                self.throttle.record_success()
                return result
            except CloudStoreError as error:
                if error.operation != upload.name:  # the connection cannot be read, or its keys not exchanged
                    raise
                outcome = error
            self.throttle.record_failure(outcome)
            if isinstance(outcome, exceptions.AuthenticationError):
                return outcome
            if outcome.may_have_effect:
                retries.count, doubt = retries.count + 1, outcome
            elif outcome.retried:
                continue
            try:
                await asyncio.sleep(retries.next_pause_or_raise(outcome))
            except CloudStoreError:
                return doubt or outcome  # a refusal of a later attempt does not undo an earlier one

    def _record_failure(self, entry: Entry, error: CloudStoreError) -> None:
        """Record an upload that failed, unless it may be sent again; too many refusals in a row end the batch."""
        if isinstance(error, exceptions.AuthenticationError):
            self._token_refused.append(entry)
            self._token_refusals += 1
            if self._token_refusals == _TOKEN_REFUSALS:
                self.throttle.end(_interrupted(error.reason, error))
            return
        if isinstance(error, exceptions.ConfigurationError):  # all other uploads would fail, too
            self.throttle.end(error)
            return
        status = Status.UNKNOWN if error.may_have_effect else Status.FAILED
        self.ledger.record(entry, status, url=error.subject, error=error.reason)
        is_refusal = not (error.retried or error.may_have_effect)
        self._refusals += is_refusal
        if is_refusal and self._refusals == self.options.max_consecutive_failures:
            what = f"{self._refusals:,} requests in a row were refused (max_consecutive_failures), last: {error.reason}"
            last = error.subject
            self.throttle.end(exceptions.BatchFailedError(what, operation="batch upload", subject=last))
