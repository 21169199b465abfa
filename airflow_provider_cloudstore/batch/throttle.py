"""Decides when the next request is sent: with a valid lease, at the rate, outside pauses, and not to a failing service."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, cast

from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.failures import is_about_service

log = logging.getLogger(__name__)

FAILURES_TO_CLOSE = 5
"""Consecutive failures of the service that close the throttle."""
_MIN_PAUSE = 1.0  # after a 429: a service may ask for no time at all
_INITIAL_PROBE_DELAY = 1.0
_MAX_PROBE_DELAY = 60.0
_OUTAGE_LIMIT = 900.0  # without a success; then the batch ends, and Airflow's retry_delay decides
# These had no effect, so they cost the call no attempt.
_RETRIED_FREE = (errors.RateLimitError, errors.ServiceUnreachableError)


class Drained(Exception):
    """The throttle sends nothing more."""


class Throttle:
    """Admits the requests of a batch.

    :param lease: the permission to send at all.
    :param requests_per_second: a steady rate, or None for no limit.
    """

    def __init__(self, lease: Lease, requests_per_second: float | None) -> None:
        self._lease = lease
        self._interval = 1 / requests_per_second if requests_per_second else 0.0
        self._time = asyncio.get_running_loop().time
        self._next_slot = 0.0
        self._paused_until = 0.0
        self._last_healthy = self._time()
        self._in_flight = 0
        self._consecutive_failures = 0
        self._backoff = 0.0
        self._probing = False
        self._closed_at = 0.0
        self._changed = asyncio.Event()
        self._ended_by: Exception | None = None
        self._waiting: set[asyncio.Task[Any]] = set()
        self.times_closed = 0
        """How often the service began to fail."""

    @property
    def is_closed(self) -> bool:
        """Whether the service fails, so that only single probes are sent."""
        return self._backoff > 0

    @property
    def waits_for(self) -> str:
        """Until when the batch waits for the service; empty if it does not."""
        if not self.is_closed and not self._is_paused:
            return ""
        then = "" if not self._is_paused else f", next request at {self._to_utc(self._paused_until)} UTC"
        if not self.is_closed:
            return f"waiting as the service asks{then}"
        began, ends = (self._to_utc(moment) for moment in (self._closed_at, self._last_healthy + _OUTAGE_LIMIT))
        return f"waiting for the service since {began} until at most {ends} UTC{then}"

    async def acquire(self) -> None:
        """Wait until the next request may be sent.

        :raises CloudStoreError: if the service has failed for too long.
        :raises Drained: if nothing more is sent.
        """
        if self._interval or not self._may_send():
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            self._waiting.add(task)
            try:
                await self._wait()
            finally:
                self._waiting.discard(task)
        self._probing = self.is_closed
        self._in_flight += 1

    def drain(self) -> None:
        """Send nothing more, and cancel the waiting tasks."""
        self._ended_by = self._ended_by or Drained()
        for task in self._waiting:
            task.cancel()

    def _may_send(self) -> bool:
        """Whether all but the rate allows a request now. While the service fails, one probe is in flight at a time."""
        if self._ended_by:
            raise self._ended_by
        return self._lease.is_valid and not self._is_paused and not (self.is_closed and self._in_flight)

    @property
    def _is_paused(self) -> bool:
        return self._paused_until > self._time()

    async def _wait(self) -> None:
        while True:
            while not self._may_send():
                if not self._lease.is_valid:
                    await self._lease.valid()
                else:
                    await self._change(self._paused_until - self._time() if self._is_paused else None)
            if (left := self._reserve_slot()) <= 0:
                return
            await asyncio.sleep(left)
            if self._may_send():  # if not, the slot has passed: the next one is reserved once it may be sent
                return

    def _reserve_slot(self) -> float:
        """Reserve the next slot at the rate, and return the seconds until then."""
        if not self._interval:
            return 0.0
        now = self._time()
        slot = max(now, self._next_slot)
        self._next_slot = slot + self._interval
        return slot - now

    async def _change(self, seconds: float | None = None) -> None:
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def record_success(self) -> None:
        """Record that the service accepted an upload."""
        self._in_flight -= 1
        self._record_healthy()
        self._changed.set()

    def record_failure(self, error: CloudStoreError) -> bool:
        """Record that a request failed.

        :returns: whether to resend the request at no cost to the call, because it had no effect.
        """
        self._in_flight -= 1
        if is_about_service(error):
            self._record_service_failure(error)
        else:
            self._record_healthy()  # the service works: it rejected this URL
        self._changed.set()
        return isinstance(error, _RETRIED_FREE)

    def _record_healthy(self) -> None:
        if self.is_closed and not self._probing:
            return  # it was sent before the service failed
        if self.is_closed:
            log.warning("The service works again after %.0f s; resuming at full speed.", self._time() - self._closed_at)
        self._last_healthy = self._time()
        self._consecutive_failures, self._backoff, self._probing = 0, 0.0, False

    def _record_service_failure(self, error: CloudStoreError) -> None:
        if isinstance(error, errors.RateLimitError):
            self._pause(max(_MIN_PAUSE, error.retry_after or 0.0), error)
        self._consecutive_failures += 1
        if self._consecutive_failures < FAILURES_TO_CLOSE or (self.is_closed and not self._probing):
            return  # requests in flight when it closed are no news
        self._probing = False
        is_first = not self.is_closed
        self._backoff = min(max(_INITIAL_PROBE_DELAY, 2 * self._backoff), _MAX_PROBE_DELAY)
        self._pause(self._backoff, error)
        if is_first:
            self.times_closed += 1
            self._closed_at = self._time()
        if is_first and not self._ended_by:
            log.warning("The service accepts no uploads (%s): sending single probes; %s.", error.reason, self.waits_for)

    def _pause(self, seconds: float, error: CloudStoreError) -> None:
        self._paused_until = max(self._paused_until, self._time() + seconds)
        if self._paused_until - self._last_healthy > _OUTAGE_LIMIT:
            self._ended_by = service_error(error)

    def _to_utc(self, moment: float) -> str:
        return time.strftime("%H:%M:%S", time.gmtime(time.time() + moment - self._time()))


def service_error(error: CloudStoreError) -> errors.BatchInterruptedError:
    """The error of a batch whose service fails: Airflow retries it, whatever the last failure was."""
    return errors.BatchInterruptedError(
        f"the service accepts no uploads; its last response: {error.reason}",
        operation="batch upload",
        status=error.status,
        retry_after=error.retry_after,
        cause="rate_limit" if isinstance(error, errors.RateLimitError) else "service",
    )
