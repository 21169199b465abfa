"""Allows a request only while the last durable checkpoint is younger than two seconds.

Whatever is killed, frozen or unavailable, a later try can lack only the outcomes of uploads in flight and of those two seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

log = logging.getLogger(__name__)

LEASE = 2.0
"""Seconds for which a checkpoint allows sending, counted from its snapshot."""
OUTAGE_LIMIT = 300.0
"""Seconds for which the receipts may be unavailable."""
_CHECKPOINT_INTERVAL = 1.0


def clock() -> float:
    """Return the time in seconds. It also passes while process or machine are suspended, because Airflow goes on meanwhile."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run blocking work in a daemon thread: a store that hangs must not keep the process alive.

    If the future is cancelled, the work keeps running and its result is dropped.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def run() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(context.run(work))
            except BaseException as error:  # noqa: BLE001  (raised where the result is awaited)
                outcome.set_exception(error)

    future = asyncio.wrap_future(outcome)
    threading.Thread(target=run, name="cloudstore-batch", daemon=True).start()
    return future


async def retry_until(attempt: Callable[[], Awaitable[T]], problem: str) -> T:
    """Call ``attempt`` until it succeeds, once a second while the receipts' folder fails.

    :raises BatchInterruptedError: if the folder failed for longer than ``OUTAGE_LIMIT``.
    :raises CloudStoreError: if ``attempt`` raised it; it is not retried.
    """
    reason = "no response"
    with suppress(TimeoutError):
        async with asyncio.timeout(OUTAGE_LIMIT):
            while True:
                try:
                    return await attempt()
                except CloudStoreError:
                    raise
                except Exception as error:  # noqa: BLE001  (any library may serve the folder; see the end)
                    reason = type(error).__name__
                log.warning("Sending is paused: %s (%s); retrying", problem, reason)
                await asyncio.sleep(_CHECKPOINT_INTERVAL)
    what = f"{problem}: retried for {OUTAGE_LIMIT:.0f} s ({reason})"
    raise BatchInterruptedError(what, operation="batch upload")


@dataclass(eq=False, repr=False)
class Lease:
    """The permission to send, valid while the last durable checkpoint is fresh. Checkpoints are written one after the other.

    :param snapshot: returns the lines to write now. It is called on the event loop.
    :param write: writes a snapshot durably. It blocks; after a failure it is called again with the same snapshot.
    """

    snapshot: Callable[[], list[str]]
    write: Callable[[list[str]], None]
    clock: Callable[[], float]
    in_thread: InThread
    _durable_at: float = field(default=-math.inf, init=False)
    _finishing: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def is_valid(self) -> bool:
        """Whether a request may be sent now."""
        return self.clock() - self._durable_at < LEASE

    def finish(self) -> None:
        """Let :meth:`renew` write one more checkpoint, of this moment or later, and end."""
        self._finishing.set()

    async def renew(self, renewed: Callable[[], None]) -> None:
        """Write a checkpoint every second, and the last one after :meth:`finish`.

        :raises BatchInterruptedError: if the receipts cannot be written for ``OUTAGE_LIMIT``, or a newer try has taken over.
        :raises BatchFailedError: if the receipts can no longer be used.
        """
        is_last = False
        while not is_last:
            is_last, snapshot_at, snapshot = self._finishing.is_set(), self.clock(), self.snapshot()
            write = partial(self.in_thread, partial(self.write, snapshot))
            await retry_until(write, "the receipts cannot be written")
            self._durable_at = snapshot_at
            if not (self.is_valid or is_last):
                log.warning("Sending is paused: writing the receipts takes longer than %.0f s", LEASE)
            renewed()
            with suppress(TimeoutError):
                async with asyncio.timeout(snapshot_at + _CHECKPOINT_INTERVAL - self.clock()):
                    await self._finishing.wait()
