"""Virtual time for the tests of batches: to wait is to turn the clock, so an outage of 15 minutes passes at once."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qs

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure

T = TypeVar("T")
P = ParamSpec("P")


class VirtualSelector(selectors.DefaultSelector):
    """Nothing happens on a socket here: to wait is to turn the clock."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "a deadlock: nothing is left that could wake anybody"
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes at once, and that can be stopped in the middle, as a process can."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        selector = VirtualSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def run_until(self, moment: float) -> None:
        handle = self.call_at(moment, self.stop)
        self.run_forever()
        handle.cancel()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in a loop of its own, whose clock starts at 0."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 100_000))
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.close()


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine, which runs in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run


def now() -> float:
    """The time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Let every task run until it waits."""
    await asyncio.sleep(1e-6)


Answer = int | Response | TransportFailure
"""An HTTP status, or what else a request ends with."""
UNREACHABLE = TransportFailure(False, "connection refused")
LOST = TransportFailure(True, "connection lost")


def response(status: int, headers: dict[str, str] | None = None, body: bytes = b"{}") -> Response:
    return Response(status, headers or {}, body, 0.0, 0.0)


class Connectable:
    """What requests are sent to, in place of a session."""

    async def send(self, request: Any, *_: Any) -> Response | TransportFailure:
        raise NotImplementedError

    @asynccontextmanager
    async def connect(self, own: Any, reload: Any, limit: int) -> AsyncIterator[AsyncClient]:
        client = AsyncClient(own, reload, limit)
        client.send = self.send  # type: ignore[method-assign]
        yield client


class VirtualService(Connectable):
    """A service in virtual time.

    :param answers: how the request for a URL ends that arrives at a time.
    :param seconds: how long a request takes.
    :ivar peak: how many requests were in flight at most.
    """

    def __init__(self, answers: Callable[[str, float], Answer] = lambda url, now: 200, seconds: float = 0.1) -> None:
        self.answers, self.seconds = answers, seconds
        self.requests = self.in_flight = self.peak = 0

    async def send(self, request: Any, *_: Any) -> Response | TransportFailure:
        self.requests += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        answer = self.answers(parse_qs(request.body.decode())["url"][0], now())
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        return response(answer) if isinstance(answer, int) else answer
