"""A gateway before an object store: it can be closed, frozen and slow, and can say that a client's credentials have expired."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)


class Gateway:
    """Hands requests on to a port of loopback, in a thread of its own.

    :param port: the store's port.
    :param refusal: the whole response to expired credentials.
    :param latency: seconds by which every request is delayed.
    """

    def __init__(self, port: int, refusal: bytes, latency: float = 0.0) -> None:
        self._store, self._refusal, self._latency = port, refusal, latency
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.frozen = False
        """Whether it takes connections and requests, and hands nothing on in either direction."""
        self.expired = b""
        """What stands in the head of each request that it refuses; empty for none."""
        self.refused = 0
        """How many requests it has refused so."""
        self.requests = 0
        """How many requests have come."""
        self.port = 0

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def open(self) -> None:
        """Listen, at the same port as before."""
        self._run(self._open())

    def close(self) -> None:
        """Listen no longer, and cut every connection, in the middle of a request too: clients are refused."""
        self._run(self._close())

    def freeze(self) -> None:
        """Answer nothing, until :meth:`thaw`."""
        self.frozen = True

    def thaw(self) -> None:
        """Go on with what has come meanwhile."""
        self.frozen = False

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        for connection in list(self._connections):
            connection.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._connections.add(client)
        store: asyncio.StreamWriter | None = None
        # The other side may end a connection at any time, and so may `close`.
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await self._request(reader, client)
                self.requests += 1
                await asyncio.sleep(self._latency)
                await self._thawed()
                if self.expired and self.expired in request:
                    self.refused += 1
                    head, end, body = self._refusal.partition(b"\r\n\r\n")
                    client.write(head + end + (b"" if request.startswith(b"HEAD ") else body))
                    continue
                if store is None:
                    responses, store = await asyncio.open_connection("127.0.0.1", self._store)
                    self._connections.add(store)
                    relay = asyncio.create_task(self._relay(responses, client))
                    relay.add_done_callback(lambda _: client.close())
                store.write(request)
        for one in filter(None, (client, store)):
            self._connections.discard(one)
            one.close()

    async def _request(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        if _EXPECT.search(head):
            head = _EXPECT.sub(b"", head)
            client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = _LENGTH.search(head)
        return head + (await reader.readexactly(int(length[1])) if length else b"")

    async def _relay(self, responses: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await responses.read(2**16):
                await self._thawed()
                client.write(content)

    async def _thawed(self) -> None:
        while self.frozen:  # noqa: ASYNC110  (set by another thread)
            await asyncio.sleep(0.05)
