"""Sends the uploads concurrently, records each outcome in the ledger, and decides when the batch ends early."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import InThread
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.recording import Status
from airflow_provider_cloudstore.batch.throttle import Drained, Throttle
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.calls import Call, UploadFromUrl
from airflow_provider_cloudstore.protocol.failures import is_about_service
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.protocol.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_cloudstore.clients.asynchronous import AsyncClient

log = logging.getLogger(__name__)

_READ_AHEAD = 256
_WITHOUT_EFFECT = (exceptions.RateLimitError, exceptions.ServiceUnreachableError)


class _Requeued(Exception):
    """A request had no effect: its URL is the next to be sent, when the throttle allows it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a batch is sent: parameters of ``RemoteUrlBatchUploadOperator``."""

    max_concurrency: int = 16
    requests_per_second: float | None = None
    max_consecutive_failures: int | None = None
    retry_unknown_outcome: bool = False


@dataclass(eq=False, repr=False)
class Sender:
    """The workers of a batch.

    :param settings: returns the connection as last read.
    :param throttle: decides when a request is sent.
    :param ledger: decides what is sent.
    :param entries: the manifest.
    :param in_thread: runs the reading of it.
    :param counted: surrounds each call, to count its requests.
    """

    client: AsyncClient
    settings: Callable[[], Settings]
    throttle: Throttle
    ledger: Ledger
    entries: Iterator[Entry]
    options: Options
    in_thread: InThread
    counted: Callable[[Call[Any]], AbstractContextManager[Any]] = nullcontext
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _queue: deque[Entry] = field(default_factory=deque, init=False)
    _refusals: int = field(default=0, init=False)
    """Consecutive ones."""

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
        except Drained:
            return
        except CloudStoreError as error:
            self.throttle.fail(error)

    async def _next(self) -> Entry | None:
        """The next entry to send, or None if nothing is left."""
        if not self._queue:  # checked before the lock too: workers that have met there would queue for it at every entry
            async with self._reading:
                if not self._queue:
                    read = await self.in_thread(lambda: list(islice(filter(self.ledger.admit, self.entries), _READ_AHEAD)))
                    self._queue.extend(read)
        return self._queue.popleft() if self._queue else None

    async def _send(self, entry: Entry) -> None:
        if entry.problem:
            self.ledger.record(entry, Status.FAILED, error=entry.problem)
            return
        try:
            call = UploadFromUrl(entry.url, self.settings(), retry_unknown_outcome=self.options.retry_unknown_outcome)
            with self.counted(call):
                upload = await self.client.perform(call, budget=math.inf, on_retry=log.debug, attempt=self._attempt)
        except _Requeued:
            self._queue.appendleft(entry)
        except exceptions.InvalidInputError as error:
            reason = error.reason.removesuffix("; nothing was sent")
            self.ledger.record(entry, Status.FAILED, url=redact_url(str(entry.url)), error=reason)
        except exceptions.AuthenticationError as error:
            raise exceptions.BatchStoppedError(
                error.reason, operation="batch upload", status=error.status, cause="token"
            ) from None
        except exceptions.ConfigurationError:
            raise
        except CloudStoreError as error:
            is_unknown = isinstance(error, (exceptions.OutcomeUnknownError, exceptions.TransientServiceError))
            status = Status.UNKNOWN if is_unknown else Status.FAILED
            self.ledger.record(entry, status, url=error.subject, error=error.reason)
            if not is_about_service(error):
                self._count_refusal(error)
        else:
            self.ledger.record(entry, Status.QUEUED, url=upload.url, file_id=upload.file_id, response=upload.response)
            self._refusals = 0

    async def _attempt(self, call: Call[Any], time_left: float) -> Any:
        """One attempt, when the throttle allows it."""
        await self.throttle.acquire()
        try:
            result = await self.client.attempt(call, time_left)
        except CloudStoreError as error:
            self.throttle.record_failure(error)
            if isinstance(error, _WITHOUT_EFFECT):
                raise _Requeued from None
            raise
        self.throttle.record_success()
        return result

    def _count_refusal(self, error: CloudStoreError) -> None:
        """End the batch after too many in a row."""
        self._refusals += 1
        if self._refusals == self.options.max_consecutive_failures:
            what = f"{self._refusals:,} requests in a row were refused (max_consecutive_failures), last: {error.reason}"
            self.throttle.fail(
                exceptions.BatchStoppedError(what, operation="batch upload", subject=error.subject, cause="refused")
            )
