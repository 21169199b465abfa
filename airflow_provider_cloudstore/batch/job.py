"""One try of a batch, from loading the progress of earlier tries to the last checkpoint; without Airflow."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from airflow_provider_cloudstore.batch.lease import Clock, InThread, Lease, Store, in_daemon_thread, retry_until
from airflow_provider_cloudstore.batch.ledger import ChunkDigests, Ledger, Match, Status, Survey, with_digests
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.receipts import Receipts, Try
from airflow_provider_cloudstore.batch.resume import Progress, StateStore, load_progress, save_state
from airflow_provider_cloudstore.batch.sending import Options, Sender
from airflow_provider_cloudstore.batch.throttle import Throttle
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.errors import (
    BatchFailedError,
    BatchInterruptedError,
    BatchStoreError,
    CloudStoreError,
    InvalidInputError,
    ManifestChangedError,
)
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_REPORT_INTERVAL = 5.0
_KILL_CHECK_INTERVAL = 0.1
_GRACE = 0.6  # for responses in transit when the task is terminated
_TIME_TO_SAVE = 0.8
_NOT_LOADED = "the progress of earlier tries cannot be read"
OUTAGE_LIMIT = 300.0
"""Seconds that a store may be unavailable."""

Entries = Callable[[], AbstractContextManager[Iterator[Entry]]]


@dataclass(frozen=True, slots=True)
class Report:
    """How a try ended.

    :param total: entries of the manifest, or of the shard.
    :param now: outcomes of this try, by status.
    :param earlier: outcomes of earlier tries, by status.
    :param failures: the first failures, redacted.
    :param error: why the batch did not fully succeed.
    """

    total: int
    now: dict[Status, int]
    earlier: dict[Status, int]
    failures: list[dict[str, Any]]
    error: CloudStoreError | None

    def count(self, status: Status) -> int:
        """URLs with a status, from this try and earlier ones."""
        return self.now.get(status, 0) + self.earlier.get(status, 0)

    def to_dict(self) -> dict[str, Any]:
        """The report as an XCom."""
        return {
            "total": self.total,
            **{status.value: self.count(status) for status in Status},
            "queued_earlier": self.earlier.get(Status.QUEUED, 0),
            "failures": self.failures,
        }


@asynccontextmanager
async def connect(settings: Settings, reload: Any, options: Options) -> AsyncIterator[AsyncClient]:
    """A client whose session has a connection for each concurrent upload."""
    async with shared_session(settings, options.max_concurrency, fresh_after_loss=True) as session:
        yield AsyncClient(settings, reload, session)


def _read(entries: Iterator[Entry]) -> Iterator[Entry]:
    """The entries of a manifest; whatever a library raises while reading becomes an error of ours."""
    reason = ""
    try:
        yield from entries
    except CloudStoreError:
        raise
    except Exception as error:  # noqa: BLE001  (any library may read the file; the task ends below)
        reason = type(error).__name__
    if reason:
        raise BatchStoreError(f"the manifest could not be read to its end ({reason})", operation="batch upload")


def _reread(opened: Entries) -> Iterator[Entry]:
    """The second pass. The manifest was valid when it was counted: what is refused now has changed, and something may be sent."""
    reason = ""
    try:
        with opened() as entries:
            yield from _read(entries)
    except InvalidInputError as error:
        reason = error.reason.removesuffix("; nothing was sent")
    if reason:
        raise ManifestChangedError(f"the manifest changed while the batch read it: now {reason}", operation="batch upload")


@dataclass(eq=False, repr=False)
class Job:
    """One try of a batch.

    :param entries: opens the manifest at its start; called once to count and once to send.
    :param settings: the connection.
    :param reload: rereads the connection; it may block.
    :param options: how the batch is sent.
    :param writer: this try.
    :param store: the state store, if there is one.
    :param receipts: the receipts, if the task has any.
    :param killed: whether the task is being terminated; polled ten times a second.
    :param time_limit: seconds after which the batch ends.
    :param allow_empty: whether a manifest may have no URL.
    :param report: logs a line.
    :param connect: creates the client.
    :param clock: the lease's clock.
    :param in_thread: runs blocking work.
    """

    entries: Entries
    settings: Settings
    reload: Callable[[], Settings]
    options: Options
    _: KW_ONLY
    writer: Try = field(default_factory=Try)
    store: StateStore | None = None
    receipts: Receipts | None = None
    killed: Callable[[], bool] = lambda: False
    time_limit: float = math.inf
    allow_empty: bool = True
    report: Callable[[str], None] = log.info
    connect: Callable[[Settings, Any, Options], AbstractAsyncContextManager[AsyncClient]] = connect
    clock: Callable[[], float] = field(default_factory=Clock)
    in_thread: InThread = in_daemon_thread
    _is_loaded: bool = field(default=False, init=False)
    _sender: Sender | None = field(default=None, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _ledger: Ledger | None = field(default=None, init=False)
    _survey: Survey = field(default_factory=Survey, init=False)
    _chunks: ChunkDigests = field(default_factory=ChunkDigests, init=False)

    async def run(self) -> Report:
        """Send what earlier tries have not finished.

        :raises CloudStoreError: if the try ended before sending anything.
        """
        work = asyncio.create_task(self._work())
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await self._abort(work)
                return self._report_of(watch.result())
            try:
                error = work.result()
            except CloudStoreError as failed:
                if self._ledger is None:
                    raise  # nothing was sent, so there is nothing to report
                error = failed
            return self._report_of(error)
        finally:
            watch.cancel()
            if not work.done():  # this task itself was cancelled
                await self._abort(work)

    async def _watch(self) -> CloudStoreError:
        """Wait until the task has to end, and return why."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.time_limit
        # Polled: a signal handler cannot wake a sleeping loop.
        while not self.killed() and loop.time() < ends_at:  # noqa: ASYNC110
            await asyncio.sleep(_KILL_CHECK_INTERVAL)
        if self.killed():
            return BatchInterruptedError("the task was terminated", operation="batch upload")
        kind = BatchStoreError if self._unavailable else BatchInterruptedError
        return kind(" and ".join(["execution_timeout is nearly over", *self._unavailable]), operation="batch upload")

    @property
    def _unavailable(self) -> list[str]:
        """What the batch waits for, if it waits for a store."""
        if not self._is_loaded:
            return [_NOT_LOADED]
        return [f"the {name} cannot be written" for name in self._lease.stale] if self._lease else []

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

    async def _work(self) -> CloudStoreError | None:
        """Run the try, and return why it ended early, or None."""
        progress = await retry_until(
            lambda: self.in_thread(lambda: load_progress(self.store, self.receipts, self.writer, self.options.since_try)),
            _NOT_LOADED,
            OUTAGE_LIMIT,
        )
        self._is_loaded = True
        self._survey, match = await self.in_thread(lambda: self._count(progress))
        self.report(self._plan())
        if self._is_resumable:
            for line in progress.explain(match, self._survey.total, resends_unknown=self.options.retry_unknown_outcome):
                self.report(line)
        else:
            log.warning("No state store and no receipts: a retry will resend every URL.")
        ledger = self._ledger = Ledger(
            self._survey,
            progress.matching(match),
            progress.recorded,
            unchanged=match.unchanged,
            skip_duplicates=self.options.skip_duplicates,
            retry_unknown=self.options.retry_unknown_outcome,
            writes_receipts=self.receipts is not None,
            try_number=self.writer.number,
            secrets=lambda: self.settings.secrets,
        )
        lease = self._lease = Lease([*self._stores(ledger)], OUTAGE_LIMIT, self.clock, self.in_thread)
        async with self.connect(self.settings, self._reload, self.options) as client:
            sender = self._sender = Sender(
                client,
                lambda: self.settings,
                Throttle(lease, self.options.requests_per_second, self.report),
                ledger,
                entries=self._chunks.verify(with_digests(_reread(self.entries), self.options.shard)),
                options=self.options,
                in_thread=self.in_thread,
            )
            await self._send(sender, lease)
        await lease.finish()
        return sender.error

    async def _send(self, sender: Sender, lease: Lease) -> None:
        """Send while the lease is renewed and progress is logged; end the batch if the lease cannot be renewed."""
        sending, checkpointing = asyncio.create_task(sender.run()), asyncio.create_task(lease.checkpoint_loop())
        reporting = asyncio.create_task(self._report_progress(sender.ledger, lease))
        try:
            await asyncio.wait({sending, checkpointing} if self._is_resumable else {sending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                sender.drain()
                await asyncio.wait({sending}, timeout=_GRACE)
                with suppress(TimeoutError, CloudStoreError):
                    await lease.finish(_TIME_TO_SAVE)  # so that the other store is complete
                checkpointing.result()
            sending.result()
        finally:
            for task in (sending, checkpointing, reporting):
                task.cancel()
            await asyncio.wait({sending, checkpointing, reporting})

    def _count(self, progress: Progress) -> tuple[Survey, Match]:
        with self.entries() as entries:
            found = self._chunks.record(with_digests(_read(entries), self.options.shard))
            survey, match = Survey.of(found, progress.state)
        if not survey.total and not self.allow_empty:
            raise InvalidInputError("the manifest holds no URL: set allow_empty=True if it may be empty; nothing was sent")
        return survey, match

    def _plan(self) -> str:
        rate = self.options.requests_per_second
        limit = f", at most {rate:,g} a second" if rate else ""
        places = [*(["the state store"] if self.store else []), *([self.receipts.place] if self.receipts else [])]
        kept = f"; progress is kept in {' and '.join(places)}" if places else ""
        return (
            f"A batch of {self._survey.total:,} URLs: at most {self.options.max_concurrency:,} requests in flight{limit}{kept}."
        )

    @property
    def _is_resumable(self) -> bool:
        return bool(self.store or self.receipts)

    def _stores(self, ledger: Ledger) -> Iterator[Store]:
        if store := self.store:
            yield Store("task state", ledger.to_state, lambda state: save_state(store, self.writer, state))
        if self.receipts:
            yield Store("receipts folder", ledger.drain_receipts, self.receipts.write)

    async def _reload(self) -> Settings:
        self.settings = await self.in_thread(self.reload)
        return self.settings

    async def _report_progress(self, ledger: Ledger, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        began, total = loop.time(), self._survey.total
        while True:
            await asyncio.sleep(_REPORT_INTERVAL)
            done, rate = ledger.finished, sum(ledger.now.values()) / (loop.time() - began)
            failed, unknown = (ledger.now[status] + ledger.earlier[status] for status in (Status.FAILED, Status.UNKNOWN))
            left = f", about {max(0, total - done) / rate:,.0f} s left" if rate else ""
            stale = f"; waiting for the {' and the '.join(lease.stale)}" if lease.stale else ""
            counts = f"{done:,} of {total:,} URLs done, {rate:,.0f} a second, {failed:,} failed, {unknown:,} unknown"
            self.report(counts + left + stale)

    def _report_of(self, error: CloudStoreError | None) -> Report:
        ledger = self._ledger or Ledger(self._survey)
        report = Report(self._survey.total, dict(ledger.now), dict(ledger.earlier), ledger.failures, error)
        failed, unknown = report.count(Status.FAILED), report.count(Status.UNKNOWN)
        if error or not failed + unknown:
            return report
        counts = [f"{failed:,} failed"] if failed else []
        counts += [f"{unknown:,} unknown, which may have been queued"] if unknown else []
        first = ledger.failures[0]
        about = f"{first['error']}, {first['url']}" if first["url"] else first["error"]
        what = f"of {report.total:,} URLs {' and '.join(counts)}; the first, in line {first['line']:,}: {about}"
        if self.receipts:
            what += f"; receipts in {self.receipts.place}"
        if ledger.forgotten:
            what += f"; without receipts, a cleared task will not resend {ledger.forgotten:,} of the failed URLs"
        return replace(report, error=BatchFailedError(what, operation="batch upload"))
