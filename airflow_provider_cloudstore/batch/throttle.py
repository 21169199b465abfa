"""Decides when a request is sent: with a valid lease, at the rate, outside pauses, and one at a time to a failing service."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.exceptions import CONNECTION, SERVICE, CloudStoreError

log = logging.getLogger(__name__)

FAILURES_TO_PROBE = 5
"""Consecutive failures of the service after which it gets single probes."""
_LATENESS = 0.01  # seconds by which a wait may end late; the next one is shorter, so that the rate is kept
_MIN_PAUSE = 1.0  # after a 429: a service may ask for no time at all
_OUTAGE_LIMIT = 60.0  # from the first failure without a success since; then Airflow's retry is the next probe
_MAX_PAUSE = 300.0  # that a service may ask for, as for a call


class BatchEnded(Exception):
    """The throttle sends nothing more."""


class Throttle:
    """Admits the requests of a batch.

    :param lease: the permission to send at all; whoever renews it calls :meth:`wake`.
    """

    def __init__(self, lease: Lease, requests_per_second: float | None) -> None:
        self._lease = lease
        self._interval = 1 / requests_per_second if requests_per_second else 0.0
        self._time = asyncio.get_running_loop().time
        self._next_slot = self._paused_until = 0.0
        self._failing_since: float | None = None
        self._in_flight = self._failures = 0
        self._is_drained = False
        self.error: CloudStoreError | None = None
        """Why the batch ended early."""
        self._turn = asyncio.Lock()  # one task waits for the next request, and the others for it
        self._changed = asyncio.Event()

    @property
    def _is_probing(self) -> bool:
        return self._failures >= FAILURES_TO_PROBE

    async def acquire(self) -> None:
        """Wait until the next request may be sent; raises :class:`BatchEnded` if nothing more is."""
        async with self._turn:
            while (delay := self._delay()) is None or delay > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
            self._next_slot = max(self._next_slot, self._time() - _LATENESS) + self._interval
        self._in_flight += 1

    def _delay(self) -> float | None:
        """Seconds until a request may be sent, as far as is known; None until something changes."""
        if self._is_drained:
            raise BatchEnded
        if not self._lease.is_valid or (self._is_probing and self._in_flight):
            return None
        return max(self._next_slot, self._paused_until) - self._time()

    def wake(self) -> None:
        """Let what waits look again."""
        self._changed.set()

    def drain(self) -> None:
        """Send nothing more: what waits raises :class:`BatchEnded`."""
        self._is_drained = True
        self.wake()

    def fail(self, error: CloudStoreError) -> None:
        """Send nothing more, because of an error."""
        self.error = self.error or error
        self.drain()

    def record_success(self) -> None:
        """Record that the service accepted an upload."""
        self._in_flight -= 1
        self._failures, self._failing_since = 0, None
        self.wake()

    def record_failure(self, error: CloudStoreError) -> None:
        """Record that a request failed. The service works if it rejected the URL or the token."""
        if not error.is_about(SERVICE, CONNECTION) or isinstance(error, exceptions.AuthenticationError):
            self.record_success()
            return
        self._in_flight -= 1
        now = self._time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        pause = max(_MIN_PAUSE, error.retry_after or 0.0) if isinstance(error, exceptions.RateLimitError) else 0.0
        if now >= self._paused_until:  # else it was sent before the pause, and is no news
            self._failures += 1
            if self._failures == FAILURES_TO_PROBE:
                log.warning("The service accepts no uploads (%s): sending single probes.", error.reason)
            if self._is_probing:
                pause = max(pause, 2.0 ** (self._failures - FAILURES_TO_PROBE))
        self._paused_until = max(self._paused_until, now + pause)
        if now - self._failing_since >= _OUTAGE_LIMIT or pause > _MAX_PAUSE:
            self.fail(_service_error(error))
        self.wake()


def _service_error(error: CloudStoreError) -> exceptions.BatchInterruptedError:
    """The error of a batch whose service fails: Airflow retries it, whatever the last failure was."""
    return exceptions.BatchInterruptedError(
        f"the service accepts no uploads; its last response: {error.reason}",
        operation="batch upload",
        status=error.status,
        retry_after=error.retry_after,
        cause="rate_limit" if isinstance(error, exceptions.RateLimitError) else "service",
    )
