"""Reads a connection once for all hooks of an event loop.

A triggerer reads connections over one channel, one at a time. If each of thousands of waits read its own, none would ever poll.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self
from weakref import WeakKeyDictionary

from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.settings import Settings

log = logging.getLogger(__name__)

RENEW_SECONDS = 60.0
"""How old a connection may become; one in use is then renewed in the background."""
RETRY_SECONDS = 10.0
"""How soon a connection is read again after a read that failed."""
REREAD_SECONDS = 1.0
"""How soon it is read again after a read that returned a rejected token again."""

Read = Callable[[set[str]], Awaitable[Settings]]
"""How a hook reads the connection; the set holds the warnings about it that have been logged."""


class SharedConnection:
    """One connection in one event loop.

    Reads are tasks of their own, one at a time, so cancelling one user at any ``await`` does not affect the others. Every
    ``read`` is the caller's own way to read this same connection.

    :param conn_id: the Airflow connection.
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._warned: set[str] = set()
        self._users = 0
        self._settings: Settings | None = None
        self._error: BaseException | None = None  # of the last read
        self._read_at = -math.inf
        self._unchanged_at = -math.inf  # when a read after a rejection brought nothing new
        self._reading: asyncio.Task[Settings] | None = None
        self._is_reread = False

    async def open(self, read: Read) -> Settings:
        """The settings, for a hook that begins to use them."""
        if self._settings:
            return self.current(read)
        if self._reading is None and self._error and not self._is_older_than(RETRY_SECONDS):
            raise self._error.with_traceback(None)
        return await self._joined(read)

    def current(self, read: Read) -> Settings:
        """The settings as last read; if that was long ago, also begin to renew them."""
        assert self._settings, "current() comes after open()"
        if self._reading is None and self._is_older_than(RENEW_SECONDS):
            self._begin(read).add_done_callback(self._log_failure)
        return self._settings

    async def after_rejection(self, rejected: Settings, read: Read) -> Settings:
        """The settings after the service rejected a token: read once more, unless that has happened meanwhile.

        :param rejected: the settings with that token.
        """
        if self._reading and not self._is_reread:  # it may have begun before the token was replaced
            await asyncio.wait([self._reading])
        if self._settings and self._settings.access_token != rejected.access_token:
            return self._settings
        if self._reading is None and time.monotonic() - self._unchanged_at < REREAD_SECONDS:
            if self._error:
                raise self._error.with_traceback(None)
            return rejected
        return await self._joined(read, reread=True)

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[Self]:
        """Count a user."""
        if not self._users and self._is_older_than(RENEW_SECONDS):
            self._settings = None
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            reading = self._reading
            if reading and not self._users:
                self._reading = None  # who comes now begins another
                reading.cancel()
                await asyncio.wait([reading])

    def _is_older_than(self, seconds: float) -> bool:
        return time.monotonic() - self._read_at >= seconds

    async def _joined(self, read: Read, *, reread: bool = False) -> Settings:
        return await asyncio.shield(self._reading or self._begin(read, reread=reread))

    def _begin(self, read: Read, *, reread: bool = False) -> asyncio.Task[Settings]:
        async def run() -> Settings:
            return await read(self._warned)

        self._is_reread = reread
        self._reading = asyncio.get_running_loop().create_task(run(), name="read a cloudstore connection")
        self._reading.add_done_callback(self._finish)
        return self._reading

    def _finish(self, reading: asyncio.Task[Settings]) -> None:
        if self._reading is reading:
            self._reading = None
        if reading.cancelled():
            return
        self._read_at = time.monotonic()
        self._error = reading.exception()
        if self._error is None and reading.result() != self._settings:
            self._settings = reading.result()
        elif self._is_reread:
            self._unchanged_at = self._read_at

    def _log_failure(self, reading: asyncio.Task[Settings]) -> None:
        if not reading.cancelled() and (error := reading.exception()):
            reason = error.reason if isinstance(error, CloudStoreError) else type(error).__name__
            log.warning("Connection '%s' could not be read again (%s); using it as it was", self.conn_id, reason)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, type], SharedConnection]] = WeakKeyDictionary()


def shared_connection(conn_id: str, reader: type) -> AbstractAsyncContextManager[SharedConnection]:
    """The connection that all hooks of this event loop share.

    :param conn_id: the Airflow connection.
    :param reader: what decides how it is read: the hook's class.
    """
    loop = asyncio.get_running_loop()
    for other in [ref() for ref in _shared.keyrefs()]:
        if other is not None and other.is_closed():  # a remembered error may refer to it
            _shared.pop(other, None)
    connections = _shared.setdefault(loop, {})
    return connections.setdefault((conn_id, reader), SharedConnection(conn_id)).in_use()
