"""Allows a request only while the last durable checkpoint is younger than two seconds.

Whatever is killed, frozen or unavailable, a later try can miss only the uploads in flight and those of two seconds. A checkpoint
is durable once every store has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, CloudStoreError

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

log = logging.getLogger(__name__)

LEASE = 2.0
"""Seconds for which a checkpoint allows sending, counted from its snapshot."""
_CHECKPOINT_INTERVAL = 1.0
_INITIAL_BACKOFF = 0.5
_MAX_BACKOFF = 15.0


class Clock:
    """A clock that also counts time in which the process or the machine was suspended: Airflow does not wait meanwhile."""

    def __init__(self) -> None:
        self._since_boot, self._wall = self._read()
        self._now = 0.0

    def __call__(self) -> float:
        """Seconds since the clock was created."""
        # The first shows that the machine was suspended; only the second shows that a virtual machine was paused.
        since_boot, wall = self._read()
        self._now += max(0.0, since_boot - self._since_boot, wall - self._wall)
        self._since_boot, self._wall = since_boot, wall
        return self._now

    @staticmethod
    def _read() -> tuple[float, float]:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run blocking work in a daemon thread: a store that hangs must not keep the process alive.

    :param work: what to run. If the future is cancelled, it keeps running and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting any more
    context = contextvars.copy_context()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = future.set_result, context.run(work)
        except BaseException as error:  # noqa: BLE001  (raised where the result is awaited)
            outcome = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the task has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="cloudstore-batch", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A place for checkpoints.

    :param name: its name in the log.
    :param snapshot: returns what has to be written now. Called on the event loop.
    :param write: writes a snapshot durably. It blocks; after a failure it is called again with the same snapshot.
    """

    name: str
    snapshot: Callable[[], Any]
    write: Callable[[Any], None]


async def retry_until(attempt: Callable[[], Awaitable[T]], what: Callable[[], str], outage_limit: float) -> T:
    """Retry with backoff while a store fails.

    :param attempt: uses the store.
    :param what: returns the problem, for the log and the error.
    :param outage_limit: seconds for all attempts.
    :raises BatchInterruptedError: if the store failed for longer.
    :raises CloudStoreError: if ``attempt`` raised it.
    """
    reason, backoff = "no response", _INITIAL_BACKOFF
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(outage_limit):
            while True:
                try:
                    return await attempt()
                except CloudStoreError:
                    raise
                except Exception as error:  # noqa: BLE001  (any library may be behind the store; the task ends below)
                    reason = type(error).__name__
                log.warning("Sending is paused: %s (%s); retrying", what(), reason)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF)
    raise BatchInterruptedError(
        f"{what()}: retried for {outage_limit:.0f} s ({reason})", operation="batch upload", cause="store"
    )


@dataclass(slots=True)
class _Checkpoint:
    """One moment, and what is not yet written of it."""

    at: float
    unwritten: dict[Store, Any]
    writing: dict[Store, asyncio.Future[None]] = field(default_factory=dict)


class Lease:
    """The permission to send: the last durable checkpoint is fresh.

    Checkpoints are written one at a time: an older one never overwrites a newer one, and none is skipped.

    :param stores: where checkpoints are stored; without any, nothing can be resumed and sending is always allowed.
    :param outage_limit: seconds for which a store may be unavailable.
    :param clock: measures the age of a checkpoint, including time in which the process was frozen.
    :param in_thread: runs blocking work.
    """

    def __init__(self, stores: list[Store], outage_limit: float, clock: Callable[[], float], in_thread: InThread) -> None:
        self._stores = stores
        self._outage_limit = outage_limit
        self._clock = clock
        self._in_thread = in_thread
        self._pending: _Checkpoint | None = None
        self._durable_at: float | None = None
        self._renewed = asyncio.Event()

    @property
    def is_valid(self) -> bool:
        """Whether a request may be sent now."""
        return not self._stores or (self._durable_at is not None and self._clock() - self._durable_at < LEASE)

    @property
    def waits_for(self) -> str:
        """What an invalid lease waits for: ``the task state cannot be written``; empty if it is valid."""
        if self.is_valid:
            return ""
        unwritten = self._pending.unwritten if self._pending else self._stores
        return f"the {' and the '.join(store.name for store in unwritten)} cannot be written"

    async def valid(self) -> None:
        """Wait until a request may be sent."""
        while not self.is_valid:
            self._renewed.clear()
            await self._renewed.wait()

    async def renew(self, written: Callable[[], None]) -> None:
        """Renew the lease until cancelled.

        :param written: called after each checkpoint, before anything is sent on it.
        :raises CloudStoreError: if a store is unavailable for longer than ``outage_limit``, or refuses this try.
        """
        while True:
            written_at = await self._persist()
            written()
            await asyncio.sleep(max(0.0, written_at + _CHECKPOINT_INTERVAL - self._clock()))

    async def finish(self, seconds: float | None = None) -> None:
        """Write the last checkpoint.

        :param seconds: the time limit; None for that of the stores.
        :raises TimeoutError: if it took longer.
        """
        async with asyncio.timeout(seconds):
            if self._pending:
                await self._persist()
            await self._persist()

    async def _persist(self) -> float:
        """Write a checkpoint, retried with backoff while a store fails, and return its time."""
        return await retry_until(self._checkpoint, lambda: self.waits_for or "a store cannot be written", self._outage_limit)

    async def _checkpoint(self) -> float:
        """Write one checkpoint: the unfinished one, if there is one."""
        if self._pending is None:
            self._pending = _Checkpoint(self._clock(), {store: store.snapshot() for store in self._stores})
        checkpoint = self._pending
        for error in await asyncio.gather(*(self._write(checkpoint, store) for store in [*checkpoint.unwritten]), return_exceptions=True):
            if error is not None:
                raise error
        self._pending, self._durable_at = None, checkpoint.at
        self._renewed.set()
        return checkpoint.at

    async def _write(self, checkpoint: _Checkpoint, store: Store) -> None:
        """Write to one store; if this is cancelled, the next call waits for the same write."""
        if store not in checkpoint.writing:
            snapshot = checkpoint.unwritten[store]
            checkpoint.writing[store] = asyncio.ensure_future(self._in_thread(lambda: store.write(snapshot)))
        writing = checkpoint.writing[store]
        try:
            await asyncio.shield(writing)
        finally:
            if writing.done():
                del checkpoint.writing[store]
        del checkpoint.unwritten[store]
