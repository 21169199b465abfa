"""One try of a batch from top to bottom: leave the mark, load what earlier tries did, read the manifest, send, store the rest."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from airflow_provider_cloudstore.batch.lease import Clock, InThread, Lease, Store, in_daemon_thread, retry_until
from airflow_provider_cloudstore.batch.ledger import Ledger, locate
from airflow_provider_cloudstore.batch.manifest import Manifest
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.report import Report, conclude, plan, report_progress
from airflow_provider_cloudstore.batch.resume import Resume
from airflow_provider_cloudstore.batch.sending import Options, Sender
from airflow_provider_cloudstore.batch.state import PLACE, State
from airflow_provider_cloudstore.batch.throttle import Throttle
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, BatchStoppedError, CloudStoreError
from airflow_provider_cloudstore.protocol.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

_KILL_CHECK_INTERVAL = 0.1
_GRACE = 0.6  # for responses in transit when the task is terminated
_TIME_TO_SAVE = 0.8
OUTAGE_LIMIT = 300.0
"""Seconds that a store may be unavailable."""


@asynccontextmanager
async def connect(settings: Settings, reload: Any, limit: int) -> AsyncIterator[AsyncClient]:
    """A client whose session has a connection for each concurrent upload."""
    async with shared_session(settings, limit) as session:
        yield AsyncClient(settings, reload, session)


@dataclass(eq=False, repr=False)
class Job:
    """One try of a batch.

    :param read: reads the manifest; it blocks.
    :param reload: rereads the connection; it may block.
    :param receipts: the receipts, if the task has any: then they hold the progress.
    :param killed: whether the task is being terminated; polled ten times a second.
    :param time_limit: seconds after which the batch ends.
    :param allow_empty: whether a manifest may have no URL.
    :param report: logs a line.
    """

    read: Callable[[], Manifest]
    settings: Settings
    reload: Callable[[], Settings]
    options: Options
    _: KW_ONLY
    writer: Try = field(default_factory=Try)
    state: State | None = None
    receipts: Receipts | None = None
    killed: Callable[[], bool] = lambda: False
    time_limit: float = math.inf
    allow_empty: bool = True
    report: Callable[[str], None] = log.info
    connect: Callable[[Settings, Any, int], AbstractAsyncContextManager[AsyncClient]] = connect
    clock: Callable[[], float] = field(default_factory=Clock)
    in_thread: InThread = in_daemon_thread
    _step: str = field(default="the progress of earlier tries cannot be read", init=False)
    _lease: Lease | None = field(default=None, init=False)

    async def run(self) -> Report:
        """Send what earlier tries have not finished.

        :raises CloudStoreError: if the try ended before the manifest was counted.
        """
        ended = asyncio.create_task(self._wait_for_end())
        try:
            resume = Resume(self.options, self.writer, lambda: self.settings.secrets, self.state, self.receipts)
            ledger = await self._prepare(resume.load, ended)
            self._step = "the manifest is still being read"
            manifest = await _unless(ended, self.in_thread(self.read))
            await _unless(ended, self.in_thread(lambda: resume.survey(manifest, allow_empty=self.allow_empty)))
            self._step = "the receipts cannot be written"
            await self._prepare(lambda: resume.take_over(manifest), ended)
            self._step = ""
            place = self.receipts.place if self.receipts else PLACE if self.state else ""
            self.report(plan(ledger, self.options, place))
            if not place:
                log.warning("No state store and no `receipts`: a retry will resend every URL.")
            error = await self._send(ledger, manifest, ended)
        except CloudStoreError as failed:
            if not self._lease:
                raise  # nothing was counted, so there is nothing to report
            error = failed
        finally:
            ended.cancel()
        return conclude(ledger, error, self.options, self.receipts.place if self.receipts else "")

    async def _prepare(self, work: Callable[[], T], ended: asyncio.Task[CloudStoreError]) -> T:
        """Blocking work with a store, retried while that fails."""
        return await _unless(ended, retry_until(lambda: self.in_thread(work), self._step, OUTAGE_LIMIT))

    async def _send(self, ledger: Ledger, manifest: Manifest, ended: asyncio.Task[CloudStoreError]) -> CloudStoreError | None:
        """Send while the lease is renewed and progress is logged, and return why that ended early, or None."""
        lease = self._lease = Lease(self._stores(ledger), OUTAGE_LIMIT, self.clock, self.in_thread)
        throttle = Throttle(lease, self.options.requests_per_second)
        entries = locate(manifest(), self.options.shard)
        async with self.connect(self.settings, self._reload, self.options.max_concurrency) as client:
            sender = Sender(client, lambda: self.settings, throttle, ledger, entries, self.options, self.in_thread)
            sending = asyncio.create_task(sender.run())
            renewing = asyncio.create_task(lease.renew(lambda: self._check_room(sender)))
            reporting = asyncio.create_task(report_progress(ledger, throttle, self.report))
            try:
                await asyncio.wait({sending, renewing, ended}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    lease.finish()
                    await asyncio.wait({renewing, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:  # of a task that is cancelled, too: within two seconds, accept responses in transit and store the progress
                sender.drain()
                await asyncio.wait({sending}, timeout=_GRACE)
                lease.finish()
                await asyncio.wait({renewing}, timeout=_TIME_TO_SAVE)
                if not renewing.done():
                    log.warning("Could not store the last second of progress")
                for task in (sending, renewing, reporting):
                    task.cancel()
                await asyncio.wait({sending, renewing, reporting})
        if ended.done():
            return ended.result()
        renewing.result()
        sending.result()
        return sender.error

    def _stores(self, ledger: Ledger) -> list[Store]:
        stores = [Store("receipts folder", ledger.drain_receipts, self.receipts.write)] if self.receipts else []
        if self.state:
            stores.append(Store("task state", ledger.copy_positions, self.state.save))
        return stores

    def _check_room(self, sender: Sender) -> None:
        if self.state and self.state.is_full:
            what = "the progress no longer fits into the 64 KiB of Airflow's state store: too many URLs failed between others"
            advice = "Set `receipts` and clear the task: it takes over what is stored, and resumes."
            sender.fail(BatchStoppedError(what, operation="batch upload", cause="state", advice=advice))

    async def _reload(self) -> Settings:
        self.settings = await self.in_thread(self.reload)
        return self.settings

    async def _wait_for_end(self) -> CloudStoreError:
        """Wait until the task has to end, and return why."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.time_limit
        # Polled: a signal handler cannot wake a sleeping loop.
        while not self.killed() and loop.time() < ends_at:  # noqa: ASYNC110
            await asyncio.sleep(_KILL_CHECK_INTERVAL)
        if self.killed():
            return BatchInterruptedError("the task was terminated", operation="batch upload", cause="terminated")
        waits = self._step or (self._lease.waits_for if self._lease else "")
        what = " and ".join(filter(None, ["execution_timeout is nearly over", waits]))
        return BatchInterruptedError(what, operation="batch upload", cause="timeout")


async def _unless(ended: asyncio.Task[CloudStoreError], work: Awaitable[T]) -> T:
    """The result of work, which is given up when the task has to end."""
    working = asyncio.ensure_future(work)
    await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        return working.result()
    working.cancel()
    raise ended.result()
