"""Sends the uploads concurrently, records each outcome in the ledger, and decides when the batch ends early."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.batch.throttle import BatchEnded, Throttle
from airflow_provider_cloudstore.exceptions import SUBJECT, CloudStoreError
from airflow_provider_cloudstore.protocol.attempts import Attempts, pause_before_retry
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.results import RemoteUpload
from airflow_provider_cloudstore.protocol.secrets import redact_url

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient

log = logging.getLogger(__name__)

_LINES_AT_ONCE = 20  # of each worker
_TOKEN_REFUSALS = 2


@dataclass(frozen=True, slots=True)
class Options:
    """How a batch is sent: parameters of ``RemoteUrlBatchUploadOperator``."""

    max_concurrency: int = 16
    requests_per_second: float | None = None
    max_consecutive_failures: int | None = None
    retry_unknown_outcome: bool = False


@dataclass(eq=False, repr=False)
class Sender:
    """The workers of a batch, which share one reading of the manifest."""

    client: AsyncClient
    throttle: Throttle
    ledger: Ledger
    entries: Iterator[Entry]
    options: Options
    _token_refused: list[Entry] = field(default_factory=list, init=False)
    """To be sent again."""
    _refusals: int = field(default=0, init=False)
    """Consecutive ones."""
    _token_refusals: int = field(default=0, init=False)

    async def run(self) -> None:
        """Send until nothing is left or an error ends the batch, then wait for the requests in flight."""
        workers = [asyncio.create_task(self._work()) for _ in range(self.options.max_concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            self.throttle.drain()
            await asyncio.wait(workers)

    async def _work(self) -> None:
        try:
            while (entry := await self._next()) is not None:
                await self._send(entry)
        except BatchEnded:
            return
        except CloudStoreError as error:
            self.throttle.fail(error)

    async def _next(self) -> Entry | None:
        """The next entry to send, or None if nothing is left."""
        if self._token_refused:
            return self._token_refused.pop()
        for entry in self.entries:
            if entry.line % _LINES_AT_ONCE == 0:  # a kill is noticed while millions are skipped, or have no URL
                await asyncio.sleep(0)
            if self.ledger.admit(entry):
                return entry
        return None

    async def _send(self, entry: Entry) -> None:
        if entry.problem:
            self.ledger.record(entry, Status.FAILED, error=entry.problem)
            return
        opted_in = self.options.retry_unknown_outcome
        try:
            upload = UploadFromUrl(self.client.settings, entry.url, retry_unknown_outcome=opted_in)
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
        """How an upload ends. An attempt is made when the throttle allows it, and one without effect is not counted."""
        known = Attempts(self.client.settings.max_attempts)
        while True:
            await self.throttle.acquire()
            attempts, settings = known.next(), self.client.settings
            outcome = await self.client.attempt(upload, settings, attempts, math.inf)
            if not isinstance(outcome, CloudStoreError):
                self.throttle.record_success()
                return outcome
            self.throttle.record_failure(outcome)
            if outcome.retried and not outcome.may_have_effect:
                known = Attempts(settings.max_attempts)
                continue
            pause = pause_before_retry(outcome, attempts, math.inf, log.debug)
            if pause is None:
                return outcome
            await asyncio.sleep(pause)
            if attempts.needs_token(outcome) and not await self.client.has_new_token(settings):
                return outcome
            known = attempts.after(outcome, settings.access_token)

    def _record_failure(self, entry: Entry, error: CloudStoreError) -> None:
        """Record an upload that failed, unless it may be sent again."""
        if isinstance(error, exceptions.AuthenticationError):
            self._token_refused.append(entry)
            self._count_token_refusal(error)
            return
        if not error.sent:  # the connection cannot be used: all others would fail, too
            self.throttle.fail(error)
            return
        status = Status.UNKNOWN if error.may_have_effect else Status.FAILED
        self.ledger.record(entry, status, url=error.subject, error=error.reason)
        if error.is_about(SUBJECT):
            self._count_refusal(error)

    def _count_token_refusal(self, error: CloudStoreError) -> None:
        """End the batch after the second one without a success between: a rotation may be under way."""
        self._token_refusals += 1
        if self._token_refusals == _TOKEN_REFUSALS:
            ended = exceptions.BatchInterruptedError(
                error.reason, operation="batch upload", status=error.status, message=error.message, cause="token"
            )
            self.throttle.fail(ended)

    def _count_refusal(self, error: CloudStoreError) -> None:
        """End the batch after too many in a row."""
        self._refusals += 1
        if self._refusals == self.options.max_consecutive_failures:
            what = f"{self._refusals:,} requests in a row were refused (max_consecutive_failures), last: {error.reason}"
            self.throttle.fail(
                exceptions.BatchStoppedError(what, operation="batch upload", subject=error.subject, cause="refused")
            )
