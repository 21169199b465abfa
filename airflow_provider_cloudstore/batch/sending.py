"""Sends the uploads concurrently, records each outcome in the ledger, and decides when the batch ends early."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_provider_cloudstore.batch.lease import InThread
from airflow_provider_cloudstore.batch.ledger import CHUNK, Ledger, Status, Ticket
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.throttle import SERVICE_ERRORS, Drained, Throttle, service_error
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call, QueueUpload, UploadFromUrl
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.results import RemoteUpload
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

# Every other upload would fail the same way.
_FATAL_ERRORS = (errors.AuthenticationError, errors.ConfigurationError, errors.BatchServiceError)


@dataclass(frozen=True, slots=True)
class Options:
    """How a batch is sent: the parameters of ``RemoteUrlBatchUploadOperator``, parsed.

    :param stop_on_error: end with the first failure.
    :param since_try: the first try whose progress counts.
    """

    max_concurrency: int = 16
    requests_per_second: float | None = None
    stop_on_error: bool = False
    skip_duplicates: bool = True
    retry_unknown_outcome: bool = False
    max_consecutive_failures: int | None = None
    shard: tuple[int, int] | None = None
    since_try: int = 0


@dataclass(eq=False, repr=False)
class Sender:
    """The workers of a batch.

    :param client: sends the requests.
    :param settings: returns the connection as last read.
    :param throttle: decides when a request is sent.
    :param ledger: decides what is sent, and records the outcomes.
    :param entries: the manifest, with digests.
    :param options: how the batch is sent.
    :param in_thread: runs blocking work.
    """

    client: AsyncClient
    settings: Callable[[], Settings]
    throttle: Throttle
    ledger: Ledger
    entries: Iterator[tuple[Entry, bytes]]
    options: Options
    in_thread: InThread
    error: CloudStoreError | None = field(default=None, init=False)
    """Why the batch ended before the end of the manifest."""
    _buffer: list[tuple[Entry, bytes]] = field(default_factory=list, init=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _capacity_freed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _consecutive_failures: int = field(default=0, init=False)
    _suspects: list[tuple[Ticket, CloudStoreError]] = field(default_factory=list, init=False)
    _resent: set[int] = field(default_factory=set, init=False)
    _times_closed: int = field(default=0, init=False)
    _stopped: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Send until nothing is left or an error ends the batch, then wait for the requests in flight."""
        while True:
            workers = [asyncio.create_task(self._work()) for _ in range(self.options.max_concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
            if self.throttle.is_closed and self._suspects:
                self.error = self.error or service_error(self._suspects[-1][1])
            self._resolve_suspects(resend=False)
            if self.error or self._stopped or not self.ledger.retries:
                return  # otherwise duplicates were waiting for the last suspects

    def drain(self) -> None:
        """Start no more uploads; those in flight finish normally."""
        self._stopped = True
        self._capacity_freed.set()
        self.throttle.drain()

    def _fail(self, error: CloudStoreError) -> None:
        self.error = self.error or error
        self.drain()

    async def _work(self) -> None:
        try:
            while (ticket := await self._next()) is not None:
                await self._send(ticket)
                self._capacity_freed.set()
        except Drained:
            return
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        except CloudStoreError as error:
            self._fail(error)
        except BaseException:
            self.drain()
            raise

    async def _next(self) -> Ticket | None:
        """The next entry that needs a request, or None at the end; others are resolved on the way."""
        while not self._stopped:
            if self.ledger.retries:
                return self.ledger.retries.popleft()
            if self.ledger.is_congested:
                self._capacity_freed.clear()
                await self._capacity_freed.wait()
            elif self._buffer:
                ticket = self.ledger.admit(*self._buffer.pop())
                if ticket is not None:
                    return ticket
                self._stop_on_error()
            elif not await self._read():
                return None
        return None

    async def _read(self) -> bool:
        """Read ahead unless another worker just did, and return whether anything is left."""
        async with self._reading:
            if not self._buffer:
                self._buffer = await self.in_thread(lambda: list(islice(self.entries, CHUNK)))
                self._buffer.reverse()
        return bool(self._buffer or self.ledger.retries)

    async def _send(self, ticket: Ticket) -> None:
        kind: type[Call[Any]] = UploadFromUrl if self.ledger.writes_receipts else QueueUpload
        try:
            call = kind(ticket.entry.url, self.settings(), retry_unknown_outcome=self.options.retry_unknown_outcome)
            upload = await self.client.perform(call, budget=math.inf, on_retry=log.debug, attempt=self._attempt)
        except errors.InvalidInputError as error:
            self.ledger.record(ticket, Status.FAILED, error=f"line {ticket.entry.line}: {error.reason}")
            self._stop_on_error()
        except _FATAL_ERRORS:
            raise
        except CloudStoreError as error:
            self._record_failure(ticket, error)
        else:
            if isinstance(upload, RemoteUpload):
                self.ledger.record(ticket, Status.QUEUED, url=upload.url, response=upload.response)
            else:
                self.ledger.record(ticket, Status.QUEUED)
            self._consecutive_failures = 0
            self._resolve_suspects()

    async def _attempt(self, call: Call[Any], time_left: float) -> Any:
        """One attempt when the throttle allows it, repeated for as long as the throttle handles its failures."""
        while True:
            await self.throttle.acquire()
            try:
                result = await self.client.attempt(call, time_left)
            except CloudStoreError as error:
                if not self.throttle.record_failure(error):
                    raise
                call.discount_attempt()
            else:
                self.throttle.record_success()
                return result

    def _record_failure(self, ticket: Ticket, error: CloudStoreError) -> None:
        is_service_error = isinstance(error, SERVICE_ERRORS)
        if not self.throttle.is_closed:
            self._consecutive_failures += 1
        if isinstance(error, errors.OutcomeUnknownError):
            self.ledger.record(ticket, Status.UNKNOWN, url=error.subject, error=error.reason)
        elif is_service_error and not self.options.stop_on_error and ticket.index not in self._resent:
            self._suspects.append((ticket, error))  # the URL or the service? The next outcomes show
        else:
            self.ledger.record(ticket, Status.FAILED, url=error.subject, error=error.reason)
        if not is_service_error:
            self._resolve_suspects()
        self._stop_on_error()
        self._stop_on_consecutive_failures(error)

    def _resolve_suspects(self, *, resend: bool = True) -> None:
        """The service works: what it rejected has failed permanently, or is resent if the throttle was closed meanwhile."""
        was_closed, self._times_closed = self._times_closed != self.throttle.times_closed, self.throttle.times_closed
        suspects, self._suspects = self._suspects, []
        for ticket, error in suspects:
            if was_closed and resend:
                self._resent.add(ticket.index)
                self.ledger.retries.append(ticket)
            else:
                self.ledger.record(ticket, Status.FAILED, url=error.subject, error=error.reason)

    def _stop_on_error(self) -> None:
        failure = self.ledger.first_failure
        if not self.options.stop_on_error or failure is None or self._stopped:
            return
        unknown = failure["status"] == Status.UNKNOWN.value
        kind = errors.BatchStoppedAtUnknownError if unknown else errors.BatchStoppedError
        self._fail(kind(failure["error"], operation="remote upload", subject=failure["url"], sent=unknown))

    def _stop_on_consecutive_failures(self, error: CloudStoreError) -> None:
        limit = self.options.max_consecutive_failures
        if limit is None or self._consecutive_failures < limit or self._stopped:
            return
        if isinstance(error, SERVICE_ERRORS):
            self._fail(service_error(error))
        else:
            what = f"{self._consecutive_failures:,} uploads in a row failed (max_consecutive_failures), last: {error.reason}"
            self._fail(errors.BatchFailedError(what, operation="batch upload", subject=error.subject))
