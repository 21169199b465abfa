"""Plays one case through both clients, or through a download, and judges what came of it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, redirect_stderr
from dataclasses import replace
from functools import partial
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pendulum
import pytest
from tenacity import AsyncRetrying, Retrying

from airflow_provider_cloudstore.clients import asynchronous, blocking, downloads
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.differential.cases import Case, DownloadCase, Mismatch
from tests.differential.examples import EXAMPLES
from tests.differential.invariants import MAX_ATTEMPTS, Seen, of_call, of_download, of_every_end, of_pair, secrets_of
from tests.differential.raw_server import RawServer, Script
from tests.differential.secret_forms import ACCESS_TOKEN, LINK_TOKEN, link_url, proxy_url, source_url
from tests.support import CALLS

CLIENTS = ("blocking", "asynchronous")
_PATIENCE, _HURRY = 10.0, 0.3  # seconds that one request may take
_log = logging.getLogger(__name__)


def _download(case: DownloadCase, settings: Settings, url: str, target: bytearray) -> None:
    """Download the file of a case into ``target``: all that the net knows of the download client."""
    download = Download("f1", settings, expected_sha256=sha256(case.content).hexdigest() if case.way == "checked" else None)
    if case.way == "part":
        download.select_range(0, len(case.content))
    link = DownloadLink("f1", LINK_TOKEN, url, pendulum.now("UTC"), None)
    with BlockingClient(settings, partial(_same, settings)) as client:
        DownloadClient(client, lambda file_id: link).run(download, _Target(target), on_retry=_log.warning)
    download.result("")


@contextmanager
def _without_pauses(pause: Callable[[float], None], pause_later: Callable[[float], Any]) -> Iterator[None]:
    """Replace the pauses between two attempts: all that the net knows of how the clients retry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking, "Retrying", partial(Retrying, sleep=pause))
        patch.setattr(downloads, "Retrying", partial(Retrying, sleep=pause))
        patch.setattr(asynchronous, "AsyncRetrying", partial(AsyncRetrying, sleep=pause_later))
        yield


class _Target:
    """Where a download is written."""

    def __init__(self, data: bytearray) -> None:
        self.restart, self.write = data.clear, data.extend


class Harness:
    """A raw server and both clients, for as many cases as one likes.

    :param stack: closes what it opens.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._playing: Case | DownloadCase | None = None
        self._server = stack.enter_context(RawServer(self._script))
        self._log = stack.enter_context(_everything_printed())
        self._loop = asyncio.new_event_loop()
        stack.callback(self._loop.close)
        self._loop.set_exception_handler(lambda _, context: self._log.strays.append(f"event loop: {context}"))
        opened = AsyncExitStack()
        stack.callback(lambda: self._loop.run_until_complete(opened.aclose()))
        stack.enter_context(_without_pauses(self._pause, self._pause_later))
        self._settings = _settings(self._server.port)
        self._blocking: dict[str, BlockingClient] = {}
        self._asynchronous: dict[str, AsyncClient] = {}
        for way, own in self._settings.items():
            self._blocking[way] = stack.enter_context(BlockingClient(own, partial(_same, own)))
            session = self._loop.run_until_complete(opened.enter_async_context(shared_session(own)))
            self._asynchronous[way] = AsyncClient(own, partial(_later, own), session)

    def run(self, case: Case) -> list[Mismatch]:
        """Play a case through both clients and all operations.

        :param case: the case.
        """
        found: list[Mismatch] = []
        for operation in CALLS:
            name, ends = f"case-{case.number}-{operation}", []
            for client in CLIENTS:
                seen = self._play(case, name, partial(self._call, name, operation, client, case.way), self._settings[case.way])
                secrets = secrets_of(case, operation)
                problems = [*of_every_end(seen, secrets), *of_call(case, operation, seen), *self._strays()]
                found += [Mismatch(case, f"{client} {operation}", kind, what) for kind, what in problems]
                ends.append(seen)
            found += [Mismatch(case, operation, kind, what) for kind, what in of_pair(case, *ends)]
            if any(response.leftover for response in case.responses):
                # The next call over the same connection gets its own response.
                found += self.run(replace(case, responses=(EXAMPLES["chunks (9112 7.1)"],)))
        return found

    def run_download(self, case: DownloadCase) -> list[Mismatch]:
        """Play a case of a download.

        :param case: the case.
        """
        name, target = f"case-{case.number}-download", bytearray()
        settings = self._settings["hurried" if case.stalls else "direct"]
        url = link_url(self._server.port, name)
        seen = self._play(case, name, partial(_download, case, settings, url, target), settings)
        problems = [*of_every_end(seen, secrets_of(case, "download")), *of_download(case, seen, bytes(target)), *self._strays()]
        return [Mismatch(case, "download", kind, what) for kind, what in problems]

    def _play(self, case: Case | DownloadCase, name: str, work: Callable[[], Any], settings: Settings) -> Seen:
        self._playing = case
        self._log.lines.clear()
        self._paused = 0.0
        seen = Seen(settings.timeout)
        before = _reset_peak() if case.hostile else 0
        started, cpu = time.monotonic(), time.thread_time()
        try:
            seen.result = work()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is judged)
            seen.error = error
        seen.seconds, seen.cpu = time.monotonic() - started - self._paused, time.thread_time() - cpu
        seen.grown = _status("VmHWM") - before if case.hostile else 0
        self._loop.run_until_complete(self._settle())
        seen.logged = "\n".join(self._log.lines)
        seen.requests = self._server.requests.pop(name, 0)
        self._playing = None
        return seen

    def _call(self, name: str, operation: str, client: str, way: str) -> Any:
        kind, _ = CALLS[operation]
        call = kind(source_url(name) if operation == "upload" else name, self._settings[way])
        if client == "blocking":
            return self._blocking[way].perform(call)
        return self._loop.run_until_complete(self._asynchronous[way].perform(call))

    def _pause(self, seconds: float) -> None:
        """What a pause between two attempts is good for here."""
        began = time.monotonic()
        self._server.settle()
        self._paused += time.monotonic() - began

    async def _pause_later(self, seconds: float) -> None:
        """As :meth:`_pause`; the loop runs meanwhile, because it closes the connections that the client has given up."""
        await asyncio.to_thread(self._pause, seconds)
        await asyncio.sleep(0.001)

    async def _settle(self) -> None:
        """See to it that the next request finds every connection as the last response leaves it, and not as it is by chance."""
        await asyncio.to_thread(self._server.settle)
        await asyncio.sleep(0.001)

    def _strays(self) -> Iterator[tuple[str, str]]:
        """What nobody asked for: other requests, and what is printed or raised in the background."""
        for stray in (*map(repr, self._server.strays), *self._log.strays, self._log.stderr.getvalue()):
            if stray:
                yield "stray", stray
        self._server.strays.clear()
        self._log.strays.clear()
        self._log.stderr.truncate(self._log.stderr.seek(0))

    def _script(self, name: str, number: int, start: int | None) -> Script:
        playing = self._playing
        if playing is None or not name.startswith(f"case-{playing.number}-"):
            return Script(lambda: [b"HTTP/1.1 500 stray\r\nContent-Length: 0\r\n\r\n"])
        return playing.response(number, start).script


@contextmanager
def harness() -> Iterator[Harness]:
    """A harness without the pauses between two attempts."""
    with ExitStack() as stack:
        yield Harness(stack)


def _settings(port: int) -> dict[str, Settings]:
    direct = Settings(f"http://127.0.0.1:{port}/prefix", Secret(ACCESS_TOKEN), timeout=_PATIENCE, max_attempts=MAX_ATTEMPTS)
    # Through the proxy, nobody looks the name up: the raw server is the proxy.
    proxied = replace(direct, base_url="http://files.example.com/prefix", proxy=Secret(proxy_url(port)))
    return {"direct": direct, "hurried": replace(direct, timeout=_HURRY), "proxied": proxied}


def _same(settings: Settings) -> Settings:
    return settings


async def _later(settings: Settings) -> Settings:
    return settings


class _Log(logging.Handler):
    """Keeps what every logger says, and what is printed or raised where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.strays: list[str] = []
        self.stderr = StringIO()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _everything_printed() -> Iterator[_Log]:
    root, log = logging.getLogger(), _Log()
    handlers, level = root.handlers, root.level
    root.handlers = [log]  # pytest's own would keep every record of every case
    root.setLevel(logging.DEBUG)
    excepthook, unraisable = threading.excepthook, sys.unraisablehook
    threading.excepthook = lambda args: log.strays.append(f"thread: {args.exc_value!r}")
    sys.unraisablehook = lambda args: log.strays.append(f"unraisable: {args.exc_value!r}")
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings(), redirect_stderr(log.stderr):
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


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {name}")
