"""One try of a batch from top to bottom: leave the mark, load what earlier tries did, read the manifest, send, store the rest."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from airflow_provider_cloudstore.batch.lease import Clock, InThread, Lease, Store, in_daemon_thread, retry_until
from airflow_provider_cloudstore.batch.ledger import Ledger, locate
from airflow_provider_cloudstore.batch.manifest import Manifest
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.batch.report import Report, conclude, plan, report_progress
from airflow_provider_cloudstore.batch.resume import Resume
from airflow_provider_cloudstore.batch.sending import Options, Sender
from airflow_provider_cloudstore.batch.state import PLACE, State, no_room
from airflow_provider_cloudstore.batch.throttle import Throttle
from airflow_provider_cloudstore.batch.tries import Try
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, CloudStoreError
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
    async with shared_session(settings, limit, give_up_reuse=True) as session:
        yield AsyncClient(settings, reload, session)


@dataclass(eq=False, repr=False)
class Job:
    """One try of a batch.

    :param read: reads the manifest; it blocks.
    :param settings: the connection.
    :param reload: rereads the connection; it may block.
    :param options: how the batch is sent.
    :param writer: this try.
    :param state: the state store, if there is one.
    :param receipts: the receipts, if the task has any: then they hold the progress.
    :param killed: whether the task is being terminated; polled ten times a second.
    :param time_limit: seconds after which the batch ends.
    :param allow_empty: whether a manifest may have no URL.
    :param report: logs a line.
    :param connect: creates the client.
    :param clock: the lease's clock.
    :param in_thread: runs blocking work.
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
    _ledger: Ledger | None = field(default=None, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _sender: Sender | None = field(default=None, init=False)

    async def run(self) -> Report:
        """Send what earlier tries have not finished.

        :raises CloudStoreError: if the try ended before the manifest was counted.
        """
        work = asyncio.create_task(self._work())
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                error = _error_of(work)
            else:
                await self._abort(work)
                error = watch.result()
        finally:
            watch.cancel()
            if not work.done():  # this task itself was cancelled
                await self._abort(work)
        if self._ledger is None:
            raise error or AssertionError  # nothing was counted, so there is nothing to report
        place = self.receipts.place if self.receipts else ""
        return conclude(self._ledger, error, self.options, place, is_resumable=bool(self.state or self.receipts))

    async def _work(self) -> CloudStoreError | None:
        """Run the try, and return why it ended early, or None."""
        resume = Resume(self.options, self.writer, lambda: self.settings.secrets, self.state, self.receipts)
        ledger = await self._retried(resume.load)
        self._step = "the manifest is still being read"
        manifest = await self.in_thread(self.read)
        await self.in_thread(lambda: resume.survey(manifest, allow_empty=self.allow_empty))
        self._step = "receipts cannot be written"
        await self._retried(lambda: resume.take_over(manifest))
        self._ledger, self._step = ledger, ""
        place = self.receipts.place if self.receipts else PLACE if self.state else ""
        self.report(plan(ledger, self.options, place))
        if not place:
            log.warning("No state store and no `receipts`: a retry will resend every URL.")
        lease = self._lease = Lease(self._stores(ledger), OUTAGE_LIMIT, self.clock, self.in_thread)
        async with self.connect(self.settings, self._reload, self.options.max_concurrency) as client:
            sender = self._sender = Sender(
                client,
                lambda: self.settings,
                Throttle(lease, self.options.requests_per_second),
                ledger,
                locate(manifest(), self.options.shard),
                self.options,
                self.in_thread,
            )
            await self._send(sender, lease)
        await lease.finish()
        return sender.error

    async def _retried(self, work: Callable[[], T]) -> T:
        """Blocking work with a store, retried while that fails."""
        return await retry_until(lambda: self.in_thread(work), lambda: self._step, OUTAGE_LIMIT)

    def _stores(self, ledger: Ledger) -> list[Store]:
        stores = [Store("receipts folder", ledger.drain_receipts, self.receipts.write)] if self.receipts else []
        if self.state:
            stores.append(Store("task state", ledger.copy_positions, self.state.save))
        return stores

    def _check_room(self) -> None:
        if self.state and self.state.is_full and self._sender:
            self._sender.fail(no_room())

    async def _send(self, sender: Sender, lease: Lease) -> None:
        """Send while the lease is renewed and progress is logged; end the batch if the lease cannot be renewed."""
        sending, renewing = asyncio.create_task(sender.run()), asyncio.create_task(lease.renew(self._check_room))
        reporting = asyncio.create_task(report_progress(sender.ledger, sender.throttle, lease, self.report))
        try:
            await asyncio.wait({sending, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                sender.drain()
                await asyncio.wait({sending}, timeout=_GRACE)
                with suppress(TimeoutError, CloudStoreError):
                    await lease.finish(_TIME_TO_SAVE)
                renewing.result()
            sending.result()
        finally:
            for task in (sending, renewing, reporting):
                task.cancel()
            await asyncio.wait({sending, renewing, reporting})

    async def _watch(self) -> CloudStoreError:
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

    async def _abort(self, work: asyncio.Task[Any]) -> None:
        """End within two seconds: accept responses that arrive at once, and store the progress if the stores respond."""
        if self._sender:
            self._sender.drain()
            await asyncio.wait({work}, timeout=_GRACE)
        ended = work.done()
        work.cancel()
        with suppress(asyncio.CancelledError, CloudStoreError):
            await work
        if self._lease and not ended:
            try:
                await self._lease.finish(_TIME_TO_SAVE)
            except (TimeoutError, CloudStoreError) as error:
                log.warning("Could not store the last second of progress: %s", type(error).__name__)

    async def _reload(self) -> Settings:
        self.settings = await self.in_thread(self.reload)
        return self.settings


def _error_of(work: asyncio.Task[CloudStoreError | None]) -> CloudStoreError | None:
    try:
        return work.result()
    except CloudStoreError as error:
        return error
