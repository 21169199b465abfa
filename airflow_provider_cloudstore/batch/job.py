"""Runs one try of a batch: takes over the receipts, loads what earlier tries did, and sends what is left of the manifest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from airflow_provider_cloudstore.batch.lease import InThread, Lease, clock, in_daemon_thread, retry_until
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Manifest
from airflow_provider_cloudstore.batch.receipts import Receipts, read_part
from airflow_provider_cloudstore.batch.sender import Options, Sender, Throttle
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.exceptions import BatchInterruptedError, CloudStoreError
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_POLL_INTERVAL = 0.1
_GRACE = 0.6  # seconds for responses in transit when the task is terminated
_TIME_TO_SAVE = 0.8  # seconds for the last checkpoint after that


@dataclass(eq=False, repr=False)
class Job:
    """One try of a batch.

    :param read: reads the manifest; it blocks.
    :param settings: reads the connection, and gets a new token if it has keys; it blocks.
    :param receipts: the outcomes of earlier tries and of this try; None if the batch stores no outcomes.
    :param must_end: returns why the try has to end now, or an empty string; called ten times a second.
    """

    read: Callable[[], Manifest]
    settings: Callable[[], Settings]
    options: Options
    receipts: Receipts | None
    _: KW_ONLY
    must_end: Callable[[], str] = str
    connect: Callable[[Settings, Any, int], AbstractAsyncContextManager[AsyncClient]] = AsyncClient
    clock: Callable[[], float] = clock
    in_thread: InThread = in_daemon_thread

    async def run(self) -> Ledger:
        """Send the uploads that earlier tries have not finished.

        :raises CloudStoreError: if the try ended before the manifest was counted.
        """
        number = self.receipts.writer.number if self.receipts else 1
        ledger = Ledger(number, retry_unknown=self.options.retry_unknown_outcome)
        trying, reason = asyncio.create_task(self._try(ledger)), ""
        try:
            # `must_end` is polled, because a signal handler cannot wake a sleeping event loop.
            while not (trying.done() or (reason := self.must_end())):
                await asyncio.wait({trying}, timeout=_POLL_INTERVAL)
        finally:
            trying.cancel()
            await asyncio.wait({trying})
        ended = BatchInterruptedError(reason, operation="batch upload")
        try:
            error = ended if trying.cancelled() else trying.result()
        except CloudStoreError as failed:
            error = failed
        if error and not ledger.is_counted:
            raise error
        ledger.close(error)
        return ledger

    async def _try(self, ledger: Ledger) -> CloudStoreError | None:
        """Run the steps of a try. Return the error that ended it early, or None."""
        if receipts := self.receipts:
            parts = await retry_until(lambda: self.in_thread(receipts.begin), "the receipts cannot be written")
            for part in parts:
                read = partial(self.in_thread, partial(read_part, receipts.folder, part))
                found = await retry_until(read, "the receipts cannot be read")
                ledger.note_earlier((digest, status) for digest, status, _ in found)
        else:
            log.warning("receipts=None: nothing is remembered, so a retry sends every URL again.")
        settings = await self.in_thread(self.settings)
        manifest = await self.in_thread(self.read)
        await self.in_thread(lambda: ledger.survey(manifest()))
        counts = ledger.describe(ledger.counts)
        log.info("Sending a batch: %s; receipts: %s", counts, receipts.folder.location if receipts else "none")
        lease = Lease(ledger.drain_receipts, receipts.write if receipts else lambda _: None, self.clock, self.in_thread)
        throttle = Throttle(lease, self.options.requests_per_second)
        async with self.connect(settings, self._renew, self.options.max_concurrency) as client:
            sender = Sender(client, throttle, ledger, manifest(), self.options)
            await self._send(sender, lease, throttle)
        return throttle.error

    async def _renew(self) -> Settings:
        settings: Settings = await self.in_thread(self.settings)
        return settings

    @staticmethod
    async def _send(sender: Sender, lease: Lease, throttle: Throttle) -> None:
        """Run the sender, and renew the lease meanwhile."""
        sending, renewing = asyncio.create_task(sender.run()), asyncio.create_task(lease.renew(throttle.wake))
        try:
            await asyncio.wait({sending, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                lease.finish()
                await asyncio.wait({renewing})
        finally:  # even if the task is cancelled: within two seconds, accept responses in transit and store the progress
            throttle.end()
            await asyncio.wait({sending}, timeout=_GRACE)
            lease.finish()
            await asyncio.wait({renewing}, timeout=_TIME_TO_SAVE)
            if not renewing.done():
                log.warning("Could not store the last second of progress")
            for task in (sending, renewing):
                task.cancel()
            await asyncio.wait({sending, renewing})
        renewing.result()
        sending.result()
