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
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_provider_cloudstore.protocol.errors import BatchInterruptedError, CloudStoreError

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

log = logging.getLogger(__name__)

LEASE = 2.0
"""Seconds for which a checkpoint allows sending, counted from its snapshot."""
_CHECKPOINT_INTERVAL = 1.0
_TOO_SLOW = f"storing the progress takes longer than {LEASE:.0f} s"
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
    :param write: writes a snapshot durably. It blocks; after a failure it is called again with the same snapshot.
    """

    name: str
    snapshot: Callable[[], Any]
    write: Callable[[Any], None]


async def retry_until(attempt: Callable[[], Awaitable[T]], problem: str, outage_limit: float) -> T:
    """Retry with backoff while a store fails.

    :param attempt: uses the store.
    :param problem: for the log and the error, such as ``the task state cannot be written``.
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
                log.warning("Sending is paused: %s (%s); retrying", problem, reason)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, _MAX_BACKOFF)
    raise BatchInterruptedError(
        f"{problem}: retried for {outage_limit:.0f} s ({reason})", operation="batch upload", cause="store"
    )


class Lease:
    """The permission to send: the last durable checkpoint is fresh. Checkpoints are written one after the other.

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
        self._durable_at: float | None = None
        self._unwritten = [store.name for store in stores]
        self._renewed = asyncio.Event()
        self._finishing = asyncio.Event()

    @property
    def is_valid(self) -> bool:
        """Whether a request may be sent now."""
        return not self._stores or (self._durable_at is not None and self._clock() - self._durable_at < LEASE)

    @property
    def waits_for(self) -> str:
        """What an invalid lease waits for: ``the task state cannot be written``; empty if it is valid."""
        return "" if self.is_valid else f"the {' and the '.join(self._unwritten)} cannot be written"

    async def valid(self) -> None:
        """Wait until a request may be sent."""
        while not self.is_valid:
            self._renewed.clear()
            await self._renewed.wait()

    def finish(self) -> None:
        """Let :meth:`renew` write one more checkpoint, of this moment or later, and end."""
        self._finishing.set()

    async def renew(self, written: Callable[[], None]) -> None:
        """Write a checkpoint every second, and the last one after :meth:`finish`.

        :param written: called after each checkpoint, before anything is sent on it.
        :raises BatchInterruptedError: if a store is unavailable for longer than ``outage_limit``, or refuses this try.
        :raises BatchStoppedError: if a store can no longer be used.
        """
        is_last, fresh_at = False, self._clock()
        while not is_last:
            is_last, snapshot_at = self._finishing.is_set(), self._clock()
            self._unwritten = [store.name for store in self._stores]
            writing = [asyncio.create_task(self._write(store, store.snapshot())) for store in self._stores]
            try:
                await asyncio.gather(*writing)
            finally:
                for one in writing:
                    one.cancel()
            self._durable_at = snapshot_at
            if self.is_valid:
                fresh_at = self._clock()
            elif self._clock() - fresh_at > self._outage_limit:
                raise BatchInterruptedError(_TOO_SLOW, operation="batch upload", cause="store")
            elif not self._finishing.is_set():
                log.warning("Sending is paused: %s", _TOO_SLOW)
            written()
            self._renewed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(snapshot_at + _CHECKPOINT_INTERVAL - self._clock()):
                    await self._finishing.wait()

    async def _write(self, store: Store, snapshot: Any) -> None:
        problem = f"the {store.name} cannot be written"
        await retry_until(lambda: self._in_thread(lambda: store.write(snapshot)), problem, self._outage_limit)
        self._unwritten.remove(store.name)
