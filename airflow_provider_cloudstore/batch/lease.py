"""Allows a request only while the last durable checkpoint is younger than two seconds.

Whatever is killed, frozen or unavailable, a later try can miss only the uploads in flight and those of two seconds. Each
store has a checkpoint loop of its own, so that neither waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_provider_cloudstore.protocol.errors import BatchStoreError, CloudStoreError

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


@dataclass(frozen=True, slots=True)
class Store:
    """A place for checkpoints.

    :param name: its name in the log.
    :param snapshot: returns what has to be written now. Called on the event loop.
    :param write: writes a snapshot durably. It blocks; after a failure it is called again with the same snapshot. It raises
        ``BatchSupersededError`` if a newer try has taken over.
    """

    name: str
    snapshot: Callable[[], Any]
    write: Callable[[Any], None]


async def retry_until(attempt: Callable[[], Awaitable[T]], what: str, outage_limit: float) -> T:
    """Retry with backoff while a store fails.

    :param attempt: uses the store.
    :param what: the problem, for the log and the error.
    :param outage_limit: seconds for all attempts.
    :raises BatchStoreError: if the store failed for longer.
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
                log.warning("Sending is paused: %s (%s); retrying", what, reason)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF)
    raise BatchStoreError(f"{what}: retried for {outage_limit:.0f} s ({reason})", operation="batch upload")


class Checkpointer:
    """Writes the checkpoints of one store, one at a time: an older one never overwrites a newer one, and none is skipped.

    :param store: the store.
    :param outage_limit: seconds for which it may be unavailable.
    :param clock: measures the age of a checkpoint.
    :param in_thread: runs blocking work.
    """

    def __init__(self, store: Store, outage_limit: float, clock: Callable[[], float], in_thread: InThread) -> None:
        self.store = store
        self._outage_limit = outage_limit
        self._clock = clock
        self._in_thread = in_thread
        self._pending: tuple[float, Any] | None = None
        self._running: asyncio.Future[None] | None = None
        self._durable_at: float | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether the last durable checkpoint is young enough."""
        return self._durable_at is not None and self._clock() - self._durable_at < LEASE

    async def checkpoint(self) -> float:
        """Write one checkpoint: the unfinished one, if there is one.

        :returns: the time of its snapshot.
        """
        if self._pending is None:
            self._pending = (self._clock(), self.store.snapshot())
        snapshot_at, snapshot = self._pending
        if self._running is None:
            self._running = asyncio.ensure_future(self._in_thread(lambda: self.store.write(snapshot)))
        running = self._running
        try:
            await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None
        self._pending = None
        self._durable_at = snapshot_at
        return snapshot_at

    async def persist(self) -> float:
        """As :meth:`checkpoint`, retried with backoff while the store fails.

        :raises BatchStoreError: if the store is unavailable for longer than ``outage_limit``.
        :raises BatchSupersededError: if a newer try has taken over.
        """
        return await retry_until(self.checkpoint, f"the {self.store.name} cannot be written", self._outage_limit)

    async def finish(self) -> None:
        """Write the last checkpoint."""
        if self._pending is not None:
            await self.persist()
        await self.persist()


class Lease:
    """The permission to send: every store has a fresh checkpoint.

    :param stores: where checkpoints are stored; without any, nothing can be resumed and sending is always allowed.
    :param outage_limit: seconds for which a store may be unavailable.
    :param clock: measures the age of a checkpoint, including time in which the process was frozen.
    :param in_thread: runs blocking work.
    """

    def __init__(self, stores: list[Store], outage_limit: float, clock: Callable[[], float], in_thread: InThread) -> None:
        self._checkpointers = [Checkpointer(store, outage_limit, clock, in_thread) for store in stores]
        self._clock = clock
        self._renewed = asyncio.Event()

    @property
    def is_valid(self) -> bool:
        """Whether a request may be sent now."""
        return all(checkpointer.is_fresh for checkpointer in self._checkpointers)

    @property
    def stale(self) -> list[str]:
        """The names of the stores without a fresh checkpoint."""
        return [checkpointer.store.name for checkpointer in self._checkpointers if not checkpointer.is_fresh]

    async def valid(self) -> None:
        """Wait until a request may be sent."""
        while not self.is_valid:
            self._renewed.clear()
            await self._renewed.wait()

    async def checkpoint_loop(self) -> None:
        """Renew the lease until cancelled.

        :raises BatchStoreError: if a store is unavailable for longer than ``outage_limit``.
        :raises BatchSupersededError: if a newer try has taken over.
        """
        loops = [asyncio.create_task(self._checkpoint_loop(checkpointer)) for checkpointer in self._checkpointers]
        try:
            await asyncio.gather(*loops)
        finally:
            for one in loops:
                one.cancel()

    async def _checkpoint_loop(self, checkpointer: Checkpointer) -> None:
        while True:
            snapshot_at = await checkpointer.persist()
            self._renewed.set()
            await asyncio.sleep(max(0.0, snapshot_at + _CHECKPOINT_INTERVAL - self._clock()))

    async def finish(self, seconds: float | None = None) -> None:
        """Write the last checkpoint of every store.

        :param seconds: the time limit; None for that of the stores.
        :raises TimeoutError: if it took longer.
        """
        writing = asyncio.gather(*(checkpointer.finish() for checkpointer in self._checkpointers), return_exceptions=True)
        for error in await asyncio.wait_for(writing, seconds):
            if error is not None:
                raise error
