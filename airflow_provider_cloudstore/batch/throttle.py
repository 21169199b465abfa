"""Decides when the next request is sent: with a valid lease, at the rate, outside pauses, and not to a failing service."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import is_about_service

log = logging.getLogger(__name__)

FAILURES_TO_CLOSE = 5
"""Consecutive failures of the service that close the throttle."""
_LATENESS = 0.01  # seconds by which a wait may end late; the next one is shorter, so that the rate is kept
_MIN_PAUSE = 1.0  # after a 429: a service may ask for no time at all
_INITIAL_PROBE_DELAY = 1.0
_MAX_PROBE_DELAY = 60.0
_OUTAGE_LIMIT = 900.0  # without a success; then the batch ends, and Airflow's retry_delay decides
# These had no effect, so they cost the call no attempt.
_RETRIED_FREE = (exceptions.RateLimitError, exceptions.ServiceUnreachableError)


class Drained(Exception):
    """The throttle sends nothing more."""


class Throttle:
    """Admits the requests of a batch.

    :param lease: the permission to send at all; whoever renews it calls :meth:`wake`.
    :param requests_per_second: a steady rate, or None for no limit.
    """

    def __init__(self, lease: Lease, requests_per_second: float | None) -> None:
        self._lease = lease
        self._interval = 1 / requests_per_second if requests_per_second else 0.0
        self._time = asyncio.get_running_loop().time
        self._next_slot = self._paused_until = self._closed_at = 0.0
        self._last_healthy = self._time()
        self._in_flight = self._consecutive_failures = 0
        self._backoff = 0.0
        self._probing = False
        self._ended_by: Exception | None = None
        self._turn = asyncio.Lock()  # one task waits for the next request, and the others for it
        self._changed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the service fails, so that only single probes are sent."""
        return self._backoff > 0

    @property
    def waits_for(self) -> str:
        """What the batch waits for; empty if it does not wait."""
        pause = self._paused_until - self._time()
        if self.is_closed:
            left = self._last_healthy + _OUTAGE_LIMIT - self._time()
            return f"waiting for the service since {self._time() - self._closed_at:,.0f} s, for at most {left:,.0f} s more"
        return f"waiting for {pause:,.0f} s as the service asks" if pause > 0 else ""

    async def acquire(self) -> None:
        """Wait until the next request may be sent.

        :raises CloudStoreError: if the service has failed for too long.
        :raises Drained: if nothing more is sent.
        """
        async with self._turn:
            while (delay := self._delay()) is None or delay > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
            self._next_slot = max(self._next_slot, self._time() - _LATENESS) + self._interval
        self._probing = self.is_closed
        self._in_flight += 1

    def _delay(self) -> float | None:
        """Seconds until a request may be sent, as far as is known; None until something changes."""
        if self._ended_by:
            raise self._ended_by
        if not self._lease.is_valid or (self.is_closed and self._in_flight):
            return None
        return max(self._next_slot, self._paused_until) - self._time()

    def wake(self) -> None:
        """Let what waits look again."""
        self._changed.set()

    def drain(self) -> None:
        """Send nothing more: what waits raises :class:`Drained`."""
        self._ended_by = self._ended_by or Drained()
        self.wake()

    def record_success(self) -> None:
        """Record that the service accepted an upload."""
        self._in_flight -= 1
        self._record_healthy()
        self.wake()

    def record_failure(self, error: CloudStoreError) -> bool:
        """Record that a request failed.

        :returns: whether to resend the request at no cost to the call, because it had no effect.
        """
        self._in_flight -= 1
        if is_about_service(error):
            self._record_service_failure(error)
        else:
            self._record_healthy()  # the service works: it rejected this URL
        self.wake()
        return isinstance(error, _RETRIED_FREE)

    def _record_healthy(self) -> None:
        if self.is_closed and not self._probing:
            return  # it was sent before the service failed
        if self.is_closed:
            log.warning("The service works again after %.0f s; resuming at full speed.", self._time() - self._closed_at)
        self._last_healthy = self._time()
        self._consecutive_failures, self._backoff, self._probing = 0, 0.0, False

    def _record_service_failure(self, error: CloudStoreError) -> None:
        if isinstance(error, exceptions.RateLimitError):
            self._pause(max(_MIN_PAUSE, error.retry_after or 0.0), error)
        self._consecutive_failures += 1
        if self._consecutive_failures < FAILURES_TO_CLOSE or (self.is_closed and not self._probing):
            return  # requests in flight when it closed are no news
        is_first, self._probing = not self.is_closed, False
        self._backoff = min(max(_INITIAL_PROBE_DELAY, 2 * self._backoff), _MAX_PROBE_DELAY)
        self._pause(self._backoff, error)
        if is_first:
            self._closed_at = self._time()
            log.warning("The service accepts no uploads (%s): sending single probes.", error.reason)

    def _pause(self, seconds: float, error: CloudStoreError) -> None:
        self._paused_until = max(self._paused_until, self._time() + seconds)
        if self._paused_until - self._last_healthy > _OUTAGE_LIMIT:
            self._ended_by = self._ended_by or service_error(error)


def service_error(error: CloudStoreError) -> exceptions.BatchInterruptedError:
    """The error of a batch whose service fails: Airflow retries it, whatever the last failure was."""
    return exceptions.BatchInterruptedError(
        f"the service accepts no uploads; its last response: {error.reason}",
        operation="batch upload",
        status=error.status,
        retry_after=error.retry_after,
        cause="rate_limit" if isinstance(error, exceptions.RateLimitError) else "service",
    )
