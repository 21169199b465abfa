"""Plays one case through both clients and compares what came of it with the oracle."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from tenacity import AsyncRetrying, Retrying

from airflow_provider_cloudstore.clients import asynchronous, blocking
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.errors import CloudStoreError
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.differential.oracle import ANY_TOKEN, LINK, UPLOAD, End, ends, tame_document, why_not_storable
from tests.differential.raw_server import RawServer, Script
from tests.differential.responses import RawResponse, generate
from tests.differential.secret_forms import (
    ACCESS_TOKEN,
    PROXY_PASSWORD,
    SOURCE_PASSWORD,
    SOURCE_SIGNATURE,
    found_in,
    proxy_url,
    source_url,
)
from tests.support import CALLS

MAX_ATTEMPTS = 2
GROWTH_LIMIT = 16 * 1024 * 1024
"""Bytes that a case may add to this process."""
_PATIENCE, _HURRY = 10.0, 0.3  # seconds that one request may take
_SLACK = 1.0
_CPU_LIMIT = 1.0  # seconds of CPU for a request: a client that computes blocks every other user of its event loop
CLIENTS = ("blocking", "asynchronous")
_PROBE_TOKEN = "the-token-of-the-probe"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: what the service answers to the first request of each call, to the second, ...

    :param way: how the clients reach it: ``direct``, ``proxied`` or ``hurried``.
    """

    number: int
    responses: tuple[RawResponse, ...]
    way: str

    @classmethod
    def generate(cls, seed: str, number: int) -> Self:
        """The case of that number; the same for the same seed, whatever ran before.

        :param seed: of all cases.
        :param number: its own.
        """
        rng = Random(f"{seed}:{number}")
        responses = [generate(rng) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
        way = "hurried" if any(one.stalls for one in responses) else rng.choice(["direct", "direct", "proxied"])
        return cls(number, tuple(responses), way)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that must not be."""

    case: Case
    operation: str
    client: str
    kind: str
    what: str

    def report(self, seed: str) -> str:
        """Everything that is needed to see it again."""
        shown = "\n".join(f"    response {number}: {one.shown()}" for number, one in enumerate(self.case.responses, 1))
        return (
            f"case {self.case.number}, {self.client} {self.operation} ({self.case.way}): {self.kind}: {self.what}\n{shown}\n"
            f"    again: CLOUDSTORE_SEED={seed} CLOUDSTORE_CASE={self.case.number} make test-differential"
        )


@dataclass(slots=True)
class _Seen:
    """What came of one call."""

    result: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    requests: int = 0
    logged: str = ""


class Harness:
    """A raw server and both clients, for as many cases as one likes.

    :param stack: closes what it opens.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._responses: dict[str, tuple[RawResponse, ...]] = {}
        self._server = stack.enter_context(RawServer(self._script))
        self._log = stack.enter_context(_everything_logged())
        self._loop = asyncio.new_event_loop()
        stack.callback(self._loop.close)
        self._loop_errors: list[str] = []
        self._loop.set_exception_handler(lambda _, context: self._loop_errors.append(str(context)))
        opened = AsyncExitStack()
        stack.callback(lambda: self._loop.run_until_complete(opened.aclose()))
        self._settings = _settings(self._server.port)
        self._blocking: dict[str, BlockingClient] = {}
        self._asynchronous: dict[str, AsyncClient] = {}
        for way, own in self._settings.items():
            self._blocking[way] = stack.enter_context(BlockingClient(own, partial(_same, own)))
            session = self._loop.run_until_complete(opened.enter_async_context(shared_session(own)))
            self._asynchronous[way] = AsyncClient(own, partial(_same_later, own), session)

    def run(self, case: Case) -> list[Mismatch]:
        """Play a case through both clients and all operations.

        :param case: the case.
        """
        found: list[Mismatch] = []
        hostile = any(response.hostile for response in case.responses)
        for operation in CALLS:
            expected = ends(operation, case.responses, MAX_ATTEMPTS)
            for client in CLIENTS:
                before = _reset_peak() if hostile else 0
                seen = self._call(case, operation, client)
                problems = [*_problems(seen, expected, self._settings[case.way].timeout)]
                problems += _secrets_shown(seen, operation, case)
                if seen.error is None:
                    problems += _wrongly_stored(seen.result, operation, case)
                if hostile and (grown := _peak() - before) > GROWTH_LIMIT:
                    problems.append(("memory", f"{grown / 2**20:.0f} MiB more"))
                problems += self._after(case)
                found += [Mismatch(case, operation, client, kind, what) for kind, what in problems]
        return found

    def _call(self, case: Case, operation: str, client: str) -> _Seen:
        name = f"case-{case.number}-{operation}-{client}"
        self._responses[name] = case.responses
        seen = self._perform(name, operation, client, case.way)
        del self._responses[name]
        seen.requests = self._server.requests.pop(name, 0)
        return seen

    def _perform(self, name: str, operation: str, client: str, way: str) -> _Seen:
        seen = _Seen()
        kind, _ = CALLS[operation]
        self._log.lines.clear()
        self._paused = 0.0
        started, cpu = time.monotonic(), time.thread_time()
        try:
            call = kind(source_url(name) if operation == UPLOAD else name, self._settings[way])
            if client == "blocking":
                seen.result = self._blocking[way].perform(call)
            else:
                seen.result = self._loop.run_until_complete(self._asynchronous[way].perform(call))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is compared)
            seen.error = error
        seen.seconds, seen.cpu = time.monotonic() - started - self._paused, time.thread_time() - cpu
        self._loop.run_until_complete(self._settle())
        seen.logged = "\n".join(self._log.lines)
        return seen

    def pause(self, seconds: float) -> None:
        """What a pause between two attempts is good for here."""
        began = time.monotonic()
        self._server.settle()
        self._paused += time.monotonic() - began

    async def pause_later(self, seconds: float) -> None:
        """As :meth:`pause`; the loop runs meanwhile, because it closes the connections that the client has given up."""
        await asyncio.to_thread(self.pause, seconds)
        await asyncio.sleep(0.001)

    async def _settle(self) -> None:
        """See to it that the next request finds every connection as the last response leaves it, and not as it is by chance."""
        await asyncio.to_thread(self._server.settle)
        await asyncio.sleep(0.001)

    def _after(self, case: Case) -> Iterator[tuple[str, str]]:
        """What a response leaves behind: for the next call on the same connection, or in the background."""
        if any(response.leftover for response in case.responses):
            for client in CLIENTS:
                seen = self._perform(f"case-probe-{LINK}-{client}", LINK, client, case.way)
                if getattr(seen.result, "token", None) != _PROBE_TOKEN:
                    yield "leftover", f"the next call of the {client} client ended with {seen.error or seen.result!r}"
        if self._server.strays:
            yield "stray request", repr(self._server.strays[0])
            self._server.strays.clear()
        if self._loop_errors:
            yield "event loop", self._loop_errors.pop()

    def _script(self, name: str, number: int) -> Script:
        if name.startswith("case-probe"):
            token = b'{"token": "%s"}' % _PROBE_TOKEN.encode()
            return Script(lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(token), token)])
        responses = self._responses.get(name)
        if responses is None:
            return Script(lambda: [b"HTTP/1.1 500 stray\r\nContent-Length: 0\r\n\r\n"])
        return responses[min(number, len(responses) - 1)].script


@contextmanager
def harness() -> Iterator[Harness]:
    """A harness without the pauses between two attempts."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        running = Harness(stack)
        patch.setattr(blocking, "Retrying", partial(Retrying, sleep=running.pause))
        patch.setattr(asynchronous, "AsyncRetrying", partial(AsyncRetrying, sleep=running.pause_later))
        yield running


def _settings(port: int) -> dict[str, Settings]:
    direct = Settings(f"http://127.0.0.1:{port}/prefix", Secret(ACCESS_TOKEN), timeout=_PATIENCE, max_attempts=MAX_ATTEMPTS)
    # Through the proxy, nobody looks the name up: the raw server is the proxy.
    proxied = replace(direct, base_url="http://files.example.com/prefix", proxy=Secret(proxy_url(port)))
    return {"direct": direct, "hurried": replace(direct, timeout=_HURRY), "proxied": proxied}


def _same(settings: Settings) -> Settings:
    return settings


async def _same_later(settings: Settings) -> Settings:
    return settings


def _problems(seen: _Seen, expected: set[End], timeout: float) -> Iterator[tuple[str, str]]:
    error = seen.error
    if error is not None and not isinstance(error, CloudStoreError):
        yield f"foreign exception {type(error).__name__}", "".join(traceback.format_exception(error))[-1500:]
    elif not any(_fits(seen, end) for end in expected):
        wanted = "; or ".join(sorted(_told(end) for end in expected)[:4])
        yield f"{_name(seen)}, not {_short(expected)}", f"expected {wanted}; got {_told_seen(seen)}"
    if error is not None and (error.__cause__ or error.__context__):
        yield "chained", f"{error!r} has {(error.__cause__ or error.__context__)!r} behind it"
    if seen.seconds > seen.requests * timeout + _SLACK:
        yield "time", f"{seen.seconds:.1f} s for {seen.requests} requests of {timeout} s"
    if seen.cpu > _CPU_LIMIT * max(1, seen.requests):
        yield "CPU", f"{seen.cpu:.1f} s"


def _fits(seen: _Seen, end: End) -> bool:
    if seen.requests != end.requests or _name(seen) != (end.error or "a result"):
        return False
    if isinstance(seen.error, CloudStoreError):
        return seen.error.permanent == end.permanent and seen.error.attempts == end.requests and seen.error.status == end.status
    return end.token is None or end.token in (ANY_TOKEN, seen.result.token)


def _name(seen: _Seen) -> str:
    return type(seen.error).__name__ if seen.error is not None else "a result"


def _short(expected: set[End]) -> str:
    return " or ".join(sorted({end.error or "a result" for end in expected}))


def _told(end: End) -> str:
    requests = f"{end.requests} request{'s' * (end.requests != 1)}"
    if end.error is None:
        return f"a result after {requests}" + (f" with token {end.token!r}" if end.token else "")
    return f"{end.error} (permanent={end.permanent}, status {end.status}) after {requests}"


def _told_seen(seen: _Seen) -> str:
    if seen.error is None:
        token = getattr(seen.result, "token", None)
        return f"a result after {seen.requests} request(s)" + (f" with token {token[:300]!r}" if token else "")
    data = {name: getattr(seen.error, name, None) for name in ("permanent", "status", "attempts")}
    return f"{seen.error!s} {data} after {seen.requests} request(s)"


def _secrets_of(operation: str, case: Case) -> tuple[str, ...]:
    own = (ACCESS_TOKEN, PROXY_PASSWORD) if case.way == "proxied" else (ACCESS_TOKEN,)
    return (*own, SOURCE_PASSWORD, SOURCE_SIGNATURE) if operation == UPLOAD else own


def _secrets_shown(seen: _Seen, operation: str, case: Case) -> Iterator[tuple[str, str]]:
    secrets = _secrets_of(operation, case)
    if form := found_in(seen.logged, secrets):
        yield "secret logged", f"{form} in {seen.logged[:1500]!r}"
    if seen.error is not None:
        said = "".join(traceback.format_exception(seen.error)) + repr(seen.error) + repr(vars(seen.error))
        if form := found_in(said, secrets):
            yield "secret in an error", f"{form} in {str(seen.error)[:1500]!r}"
    elif form := found_in(f"{seen.result!r} {seen.result}", secrets):
        yield "secret in a result's repr", f"{form} in {seen.result!r:.1500}"


def _wrongly_stored(result: Any, operation: str, case: Case) -> Iterator[tuple[str, str]]:
    stored = result.to_dict()
    if why := why_not_storable(stored):
        yield "not plain data", why
        return
    text = json.dumps(stored, ensure_ascii=False)
    token = getattr(result, "token", None)
    without = text.replace(json.dumps(token, ensure_ascii=False)[1:-1], "***") if token else text
    # Escapes are undone: what stands in the database is what JSON gives back.
    if form := found_in(without + repr(list(_texts_in(stored, token))), _secrets_of(operation, case)):
        yield "secret stored", f"{form} in {text[:1500]}"
    document = tame_document(case.responses[0]) if len(case.responses) == 1 and operation != LINK else None
    everything = (ACCESS_TOKEN, PROXY_PASSWORD, SOURCE_PASSWORD, SOURCE_SIGNATURE)
    if document is None or found_in(repr(list(_texts_in(document, None))) + "".join(_texts_in(document, None)), everything):
        return
    if stored["response"] != document:
        yield "stored otherwise", f"{stored['response']!r:.700} for {document!r:.700}"


def _texts_in(value: Any, token: str | None) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts_in(inner, token)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, token)
    elif isinstance(value, str):
        yield value.replace(token, "***") if token else value


class _Log(logging.Handler):
    """Keeps what every logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _everything_logged() -> Iterator[_Log]:
    root, log = logging.getLogger(), _Log()
    handlers, level = root.handlers, root.level
    root.handlers = [log]  # pytest's own would keep every record of every case
    root.setLevel(logging.DEBUG)
    excepthook, unraisable = threading.excepthook, sys.unraisablehook
    threading.excepthook = lambda args: log.lines.append(f"thread: {args.exc_value!r}")
    sys.unraisablehook = lambda args: log.lines.append(f"unraisable: {args.exc_value!r}")
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            yield log
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = excepthook, unraisable
        root.handlers = handlers
        root.setLevel(level)


def memory() -> int:
    """Bytes of memory that this process holds."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator only keeps for later is not held (malloc_trim(3), glibc)
    return _status("VmRSS")


def _reset_peak() -> int:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now: proc(5)
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {name}")
