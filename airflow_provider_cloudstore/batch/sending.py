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
from airflow_provider_cloudstore.batch.ledger import Ledger, Located
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.throttle import Drained, Throttle, service_error
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call, UploadFromUrl
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import is_about_service
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_READ_AHEAD = 256


@dataclass(frozen=True, slots=True)
class Options:
    """How a batch is sent: the parameters of ``RemoteUrlBatchUploadOperator``, parsed."""

    max_concurrency: int = 16
    requests_per_second: float | None = None
    max_consecutive_failures: int | None = None
    allowed_failures: int = 0
    retry_unknown_outcome: bool = False
    shard: tuple[int, int] | None = None


@dataclass(eq=False, repr=False)
class Sender:
    """The workers of a batch: the ledger decides what is sent, the throttle when.

    :param settings: returns the connection as last read.
    """

    client: AsyncClient
    settings: Callable[[], Settings]
    throttle: Throttle
    ledger: Ledger
    entries: Iterator[Located]
    options: Options
    in_thread: InThread
    error: CloudStoreError | None = field(default=None, init=False)
    """Why the batch ended before the end of the manifest."""
    _buffer: list[Located] = field(default_factory=list, init=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _at_end: bool = field(default=False, init=False)
    _consecutive_failures: int = field(default=0, init=False)
    _unresolved: list[tuple[Located, CloudStoreError]] = field(default_factory=list, init=False)
    _resent: set[int] = field(default_factory=set, init=False)
    _times_closed: int = field(default=0, init=False)
    _stopped: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Send until nothing is left or an error ends the batch, then wait for the requests in flight."""
        count = min(self.options.max_concurrency, self.ledger.total)
        workers = [asyncio.create_task(self._work()) for _ in range(count)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        if self.throttle.is_closed and self._unresolved:
            self.error = self.error or service_error(self._unresolved[-1][1])
        self._resolve(resend=False)

    def drain(self) -> None:
        """Start no more uploads; those in flight finish normally."""
        self._stopped = True
        self.throttle.drain()

    def fail(self, error: CloudStoreError) -> None:
        """As :meth:`drain`, because of an error."""
        self.error = self.error or error
        self.drain()

    async def _work(self) -> None:
        try:
            while (found := await self._next()) is not None:
                await self._send(found)
        except Drained:
            return
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        except CloudStoreError as error:
            self.fail(error)
        except BaseException:
            self.drain()
            raise

    async def _next(self) -> Located | None:
        """The next entry that needs a request, or None at the end; others are resolved on the way."""
        while not self._stopped:
            if self.ledger.again:
                return self.ledger.again.popleft()
            if not self._buffer and not await self._read():
                return None
            if self._buffer and (found := self._admit(self._buffer.pop())):
                return found
        return None

    async def _read(self) -> bool:
        """Read ahead unless another worker just did, and return whether anything is left."""
        async with self._reading:
            if not self._buffer and not self._at_end:
                self._buffer = await self.in_thread(lambda: list(islice(self.entries, _READ_AHEAD)))
                self._buffer.reverse()
                self._at_end = not self._buffer
        return bool(self._buffer or self.ledger.again)

    def _admit(self, found: Located) -> Located | None:
        if found.entry.problem:
            self._fail_url(found, found.entry.problem)
            return None
        return self.ledger.admit(found)

    async def _send(self, found: Located) -> None:
        try:
            call = UploadFromUrl(found.entry.url, self.settings(), retry_unknown_outcome=self.options.retry_unknown_outcome)
            upload = await self.client.perform(call, budget=math.inf, on_retry=log.debug, attempt=self._attempt)
        except errors.InvalidInputError as error:
            self._fail_url(found, error.reason.removesuffix("; nothing was sent"))
        except errors.AuthenticationError as error:
            raise errors.BatchStoppedError(error.reason, operation="batch upload", status=error.status, cause="token") from None
        except (errors.ConfigurationError, errors.BatchInterruptedError):
            raise
        except CloudStoreError as error:
            self._record_failure(found, error)
        else:
            self.ledger.record(found, Status.QUEUED, url=upload.url, file_id=upload.file_id, response=upload.response)
            self._consecutive_failures = 0
            self._resolve()

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

    def _record_failure(self, found: Located, error: CloudStoreError) -> None:
        if isinstance(error, (errors.OutcomeUnknownError, errors.TransientServiceError)):
            self.ledger.record(found, Status.UNKNOWN, url=error.subject, error=error.reason)
        elif is_about_service(error) and found.position not in self._resent:
            self._unresolved.append((found, error))  # the URL or the service? The next outcomes show
        else:
            self.ledger.record(found, Status.FAILED, url=error.subject, error=error.reason)
        if not is_about_service(error):
            self._resolve()
        self._count_failure(error)

    def _fail_url(self, found: Located, reason: str) -> None:
        """Record a line that needs no request, because nothing in it can be sent."""
        url = "" if found.entry.problem else redact_url(str(found.entry.url))
        self.ledger.record(found, Status.FAILED, url=url, error=reason)

    def _resolve(self, *, resend: bool = True) -> None:
        """The service works: what it rejected has failed permanently, or is resent if the throttle was closed meanwhile."""
        was_closed, self._times_closed = self._times_closed != self.throttle.times_closed, self.throttle.times_closed
        unresolved, self._unresolved = self._unresolved, []
        for found, error in unresolved:
            if was_closed and resend:
                self._resent.add(found.position)
                self.ledger.again.append(found)
            else:
                self.ledger.record(found, Status.FAILED, url=error.subject, error=error.reason)

    def _count_failure(self, error: CloudStoreError) -> None:
        """End the batch after too many failures in a row. Those of an outage are the throttle's."""
        limit = self.options.max_consecutive_failures
        if self.throttle.is_closed or limit is None or self._stopped:
            return
        self._consecutive_failures += 1
        if self._consecutive_failures < limit:
            return
        if is_about_service(error):
            self.fail(service_error(error))
        else:
            what = f"{limit:,} requests in a row were refused (max_consecutive_failures), last: {error.reason}"
            self.fail(errors.BatchStoppedError(what, operation="batch upload", subject=error.subject, cause="refused"))
