"""Sends a batch: so many requests at once, no faster than allowed, and all of them pause when the service asks for it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying

from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.progress import Progress, Status, digest_of
from airflow_provider_cloudstore.batch.receipts import Receipts
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.protocol.answers import RemoteUpload
from airflow_provider_cloudstore.protocol.calls import DEFAULT_BUDGET, UploadFromUrl, retry_policy
from airflow_provider_cloudstore.protocol.errors import (
    CloudStoreError,
    ConfigurationError,
    InvalidInputError,
    MethodNotAllowed,
    OutcomeUnknown,
    RateLimited,
    RedirectRefused,
    TokenRefused,
)
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

_READ_AHEAD = 256
_AHEAD_AT_MOST = 1000  # how far a slow request may be left behind: what is ahead of it is part of the stored state
_CHECKPOINT_EVERY = 1.0
_REPORT_EVERY = 5.0
_PAUSE_WITHOUT_A_TIME = 1.0
_PAUSE_AT_MOST = 900.0  # without one upload that goes well; then the batch ends, and Airflow's retry_delay decides
_LOOK_FOR_KILL_EVERY = 0.1
_GRACE = 0.7
# What one upload ended with, every other one would end with too.
_HOPELESS = (TokenRefused, RedirectRefused, MethodNotAllowed, ConfigurationError, RateLimited)


class _Pace:
    """When the next request may be sent: no faster than the rate, and not while the service asks for a pause."""

    def __init__(self, requests_per_second: float | None) -> None:
        self._gap = 1 / requests_per_second if requests_per_second else 0.0
        self._next = 0.0
        self._closed_until = 0.0
        self._went_well = time.monotonic()

    async def turn(self) -> None:
        """Wait until a request may be sent."""
        while (left := self._closed_until - time.monotonic()) > 0:  # noqa: ASYNC110  (the pause may have grown meanwhile)
            await asyncio.sleep(left)
        if self._gap:
            now = time.monotonic()
            self._next = max(now, self._next) + self._gap
            await asyncio.sleep(self._next - self._gap - now)

    def pause(self, seconds: float | None) -> float:
        """Have every request of the batch wait.

        :param seconds: what the service asked for, if it named a time.
        :returns: seconds from the last upload that went well to the end of the pause.
        """
        wanted = time.monotonic() + (_PAUSE_WITHOUT_A_TIME if seconds is None else seconds)
        self._closed_until = max(self._closed_until, wanted)
        return self._closed_until - self._went_well

    def goes_on(self) -> None:
        """Note that the service takes uploads."""
        self._went_well = time.monotonic()


@dataclass(frozen=True, slots=True)
class Done:
    """What a receipt tells of a URL that needs no request any more."""

    digest: str
    status: Status
    error: str
    url: str

    @classmethod
    def of(cls, receipts: Receipts | None) -> dict[int, Done]:
        """What receipts tell, by position; a URL that failed is not among them: it was not queued, so it may be tried again.

        :param receipts: the receipts of earlier tries, if there are any.
        """
        return {
            receipt["position"]: cls(
                receipt["digest"],
                Status(receipt["status"]),
                receipt.get("error") or "",
                receipt["url"] if "error" in receipt else "",
            )
            for receipt in receipts or ()
            if receipt["status"] != Status.FAILED.value
        }


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch is sent.

    :param max_concurrency: requests in flight at the most.
    :param requests_per_second: a steady rate for the whole batch, or None for as fast as it goes.
    :param stop_on_error: end with the first failure.
    :param skip_duplicates: send a URL that stands twice once.
    :param retry_unknown_outcome: send an upload again that may have been queued.
    """

    max_concurrency: int = 16
    requests_per_second: float | None = None
    stop_on_error: bool = False
    skip_duplicates: bool = True
    retry_unknown_outcome: bool = False


class Batch:
    """One run over a manifest.

    :param entries: the manifest, from its start.
    :param settings: the address and the token.
    :param reload: reads the connection again; it may block.
    :param options: how it is sent.
    :param progress: where an earlier run stopped.
    :param done: what receipts tell of, by position.
    :param receipts: where to record what became of each URL.
    :param checkpoint: stores the progress; it may block.
    :param total: how many entries there are, where that is known.
    :param time_limit: seconds after which it ends as after a kill; 0 for none.
    :param tell: is given a line on the progress every few seconds.
    """

    def __init__(
        self,
        entries: Iterator[Entry],
        settings: Settings,
        reload: Callable[[], Settings],
        options: BatchOptions,
        *,
        progress: Progress | None = None,
        done: dict[int, Done] | None = None,
        receipts: Receipts | None = None,
        checkpoint: Callable[[dict[str, Any]], None] | None = None,
        total: int | None = None,
        time_limit: float = 0.0,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        self.progress = progress or Progress()
        self._entries = entries
        self._settings = settings
        self._reload_blocking = reload
        self._options = options
        self._done = done or {}
        self._receipts = receipts
        self._checkpoint = checkpoint
        self._total = total
        self._time_limit = time_limit
        self._tell = tell
        self._pace = _Pace(options.requests_per_second)
        self._seen: set[bytes] = set()
        self._buffer: list[Entry] = []
        self._reading = asyncio.Lock()
        self._room = asyncio.Event()
        self._chain = b""
        self._resumed = self.progress.watermark
        self._in_flight = 0
        self._stopped = False
        self.stopped_by: dict[str, Any] | None = None
        """The failure that stopped the batch, where the first one does."""
        self.killed = False
        self._saving = threading.Lock()
        self._saves = itertools.count()
        self._saved = -1

    def stop(self) -> None:
        """Begin no other upload."""
        self._stopped = True
        self._room.set()

    def kill(self) -> None:
        """Begin no other upload and end within a second or so; safe to call from a signal handler."""
        self.killed = True
        self._stopped = True

    def save(self) -> None:
        """Store the progress and the receipts. It blocks."""
        self._store(*self._snapshot())

    def _snapshot(self) -> tuple[int, dict[str, Any], list[str]]:
        return next(self._saves), self.progress.to_state(), self._receipts.take() if self._receipts else []

    def _store(self, number: int, state: dict[str, Any], lines: list[str]) -> None:
        # One at a time, and never an older state over a newer one: the last save may meet one that is still under way.
        with self._saving:
            if self._receipts:
                self._receipts.write(lines)
            if self._checkpoint and number > self._saved:
                self._checkpoint(state)
            self._saved = max(self._saved, number)

    async def run(self) -> None:
        """Send the batch.

        :raises CloudStoreError: if no upload can succeed any more, such as with a refused token.
        """
        async with shared_session(self._settings, self._options.max_concurrency) as session:
            client = AsyncClient(self._settings, self._reload, session)
            workers = [asyncio.create_task(self._work(client)) for _ in range(self._options.max_concurrency)]
            beside = [asyncio.create_task(self._keep()), asyncio.create_task(self._watch(workers))]
            try:
                ended = await asyncio.gather(*workers, return_exceptions=True)
            finally:
                for task in beside:
                    task.cancel()
        failed = [error for error in ended if error and not self.killed]
        failed += [error for task in beside if task.done() and not task.cancelled() and (error := task.exception())]
        if failed:
            raise failed[0]

    async def _watch(self, workers: list[asyncio.Task[None]]) -> None:
        """End the workers after a kill: those whose answer comes at once finish, the others are cut off."""
        ends_at = time.monotonic() + self._time_limit if self._time_limit else math.inf
        # No event: a signal handler cannot reach a loop that sleeps.
        while not self.killed and time.monotonic() < ends_at:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_FOR_KILL_EVERY)
        self.kill()
        await asyncio.wait(workers, timeout=_GRACE)
        for worker in workers:
            worker.cancel()

    async def _keep(self) -> None:
        """Store the progress every second and tell of it every few."""
        try:
            await self._keep_on()
        except BaseException:
            self.stop()  # what cannot be recorded would be sent again by a retry
            raise

    async def _keep_on(self) -> None:
        began, before = time.monotonic(), self.progress.finished
        told = began
        while True:
            await asyncio.sleep(_CHECKPOINT_EVERY)
            await asyncio.to_thread(self._store, *self._snapshot())
            now = time.monotonic()
            if now - told >= _REPORT_EVERY:
                told = now
                self._tell(self._line((self.progress.finished - before) / (now - began)))

    def _line(self, rate: float) -> str:
        done, counts = self.progress.finished, self.progress.counts
        of = f" of {self._total:,}" if self._total is not None else ""
        left = f", about {(self._total - done) / rate:,.0f} s left" if self._total is not None and rate else ""
        bad = counts[Status.FAILED.value], counts[Status.UNKNOWN.value]
        return f"{done:,}{of} URLs done, {rate:,.0f} a second, {bad[0]:,} failed, {bad[1]:,} unknown{left}"

    async def _reload(self) -> Settings:
        self._settings = await asyncio.to_thread(self._reload_blocking)
        return self._settings

    async def _work(self, client: AsyncClient) -> None:
        try:
            while (entry := await self._next()) is not None:
                self._in_flight += 1
                try:
                    await self._send(client, entry)
                finally:
                    self._in_flight -= 1
                    self._room.set()
        except BaseException:
            self.stop()
            raise

    async def _next(self) -> Entry | None:
        """The next entry that is to be sent; what needs no request is settled on the way."""
        async with self._reading:
            while not self._stopped:
                while not self._stopped and self._in_flight and len(self.progress.ahead) > _AHEAD_AT_MOST:
                    self._room.clear()
                    await self._room.wait()
                if not self._buffer:
                    self._buffer = await asyncio.to_thread(self._read)
                    self._buffer.reverse()
                if not self._buffer:
                    return None
                entry = self._buffer.pop()
                if not self._settle(entry):
                    return entry
        return None

    def _read(self) -> list[Entry]:
        return [entry for _, entry in zip(range(_READ_AHEAD), self._entries, strict=False)]

    def _settle(self, entry: Entry) -> bool:
        """Whether an entry needs no request: it is finished, a duplicate, or no URL."""
        position, text = entry.position, str(entry.url)
        self._chain = digest_of(text, self._chain)
        digest = digest_of(text)
        duplicate = digest in self._seen
        if self._options.skip_duplicates and not entry.problem and entry.url is not None:
            self._seen.add(digest)
        if position < self._resumed:
            return True
        if position in self.progress.ahead:
            self.progress.begin(position, self._chain)
            return True
        self.progress.begin(position, self._chain)
        done = self._done.pop(position, None)
        if done and done.digest == digest.hex():
            self.progress.finish(position, done.digest, done.status, _failure(entry, done.status, done.error, done.url))
            return True
        if entry.problem:
            self._finish(entry, Status.FAILED, f"line {entry.line}: {entry.problem}", "")
        elif duplicate:
            self._finish(entry, Status.SKIPPED, "", "")
        else:
            return False
        return True

    async def _send(self, client: AsyncClient, entry: Entry) -> None:
        call: UploadFromUrl | None = None
        try:
            call = UploadFromUrl(entry.url, self._settings, repeat=self._options.retry_unknown_outcome)
            upload = await self._perform(client, call)
        except InvalidInputError as error:
            self._finish(entry, Status.FAILED, f"line {entry.line}: {error.what}", "")
        except OutcomeUnknown as error:
            self._finish(entry, Status.UNKNOWN, error.what, error.subject)
        except _HOPELESS:
            raise
        except CloudStoreError as error:
            self._finish(entry, Status.FAILED, error.what, error.subject)
        else:
            self._finish(entry, Status.QUEUED, "", upload.url, upload.response)

    async def _perform(self, client: AsyncClient, call: UploadFromUrl) -> RemoteUpload:
        # A 429 is the batch's affair: nothing happened, all of it waits, and it costs the call neither an attempt nor its time.
        while True:
            try:
                upload = await self._try(client, call)
            except RateLimited as error:
                if self._pace.pause(error.retry_after) > _PAUSE_AT_MOST:
                    raise
                call.attempts -= 1
            else:
                self._pace.goes_on()
                return upload

    async def _try(self, client: AsyncClient, call: UploadFromUrl) -> RemoteUpload:
        async for attempt in AsyncRetrying(**retry_policy(call, DEFAULT_BUDGET, log.debug)):
            with attempt:
                await self._pace.turn()
                try:
                    result = await client.attempt(call)
                except RateLimited as error:
                    error.again = False
                    raise
        return result

    def _finish(self, entry: Entry, status: Status, error: str, url: str, answer: Any = None) -> None:
        failure = _failure(entry, status, error, url)
        if failure and self._options.stop_on_error:
            self.stop()
            self.stopped_by = self.stopped_by or failure
            if status is Status.FAILED:
                return  # not finished: a retry of the task begins with it
        digest = digest_of(str(entry.url)).hex()
        self.progress.finish(entry.position, digest, status, failure)
        if self._receipts:
            told = {"error": error} if failure else {"response": answer}
            self._receipts.add({"position": entry.position, "digest": digest, "url": url, "status": status.value, **told})


def _failure(entry: Entry, status: Status, error: str, url: str) -> dict[str, Any] | None:
    if status not in (Status.FAILED, Status.UNKNOWN):
        return None
    return {"position": entry.position, "line": entry.line, "url": url[:200], "status": status.value, "error": error[:400]}
