"""Plays one case through both clients, or through a download, and judges what came of it."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.clients import asynchronous, blocking, downloads
from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import RawServer
from tests.support import CALLS
from tests.wire.clients.conftest import Target
from tests.wire.differential.invariants import MAX_ATTEMPTS, Seen, of_call, of_download, of_every_end, of_pair, secrets_of
from tests.wire.differential.planted import ACCESS_TOKEN, LINK_TOKEN, link_url, source_url
from tests.wire.differential.responses import Case, DownloadCase, plain

_PATIENCE, _HURRY = 10.0, 0.3  # seconds that one request may take


def _download(case: DownloadCase, settings: Settings, url: str, target: Target) -> None:
    """Download the file of a case into ``target``: all that the net knows of the download client."""
    download = Download("f1", settings, expected_sha256=sha256(case.content).hexdigest() if case.way == "checked" else None)
    if case.way == "part":
        download = download.part(0, len(case.content))
    link = DownloadLink("f1", LINK_TOKEN, url, pendulum.now("UTC"), None)
    with BlockingClient(settings, lambda: settings) as client:
        DownloadClient(client, lambda file_id: link).run(download, target, on_retry=logging.warning)
    download.result("")


@contextmanager
def _without_pauses(pause: Callable[[float], None], pause_later: Callable[[float], Any]) -> Iterator[None]:
    """Replace the pauses between two attempts: all that the net knows of how the clients retry."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (blocking, downloads):
            patch.setattr(module, "time", SimpleNamespace(**{**vars(time), "sleep": pause}))
        patch.setattr(asynchronous, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause_later}))
        yield


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that must not be.

    :param who: the client and the operation.
    """

    case: Case | DownloadCase
    who: str
    kind: str
    what: str


class Harness:
    """A raw server and both clients, for as many cases as one likes.

    :param stack: closes what it opens.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._playing: Case | DownloadCase | None = None
        self._turn = threading.Lock()
        self._server = stack.enter_context(closing(RawServer(self._serve)))
        self._log = stack.enter_context(_everything_said())
        self._loop = asyncio.new_event_loop()
        stack.callback(self._loop.close)
        self._loop.set_exception_handler(lambda _, context: self._log.strays.append(f"event loop: {context}"))
        opened = AsyncExitStack()
        stack.callback(lambda: self._loop.run_until_complete(opened.aclose()))
        stack.enter_context(_without_pauses(self._pause, self._pause_later))
        direct = Settings(f"{self._server.url}/prefix", Secret(ACCESS_TOKEN), timeout=_PATIENCE, max_attempts=MAX_ATTEMPTS)
        self._settings = {False: direct, True: replace(direct, timeout=_HURRY)}
        self._clients: dict[bool, tuple[BlockingClient, AsyncClient]] = {}
        for hurried, own in self._settings.items():
            client = stack.enter_context(BlockingClient(own, partial(self._settings.__getitem__, hurried)))
            session = self._loop.run_until_complete(opened.enter_async_context(shared_session(own)))
            self._clients[hurried] = client, AsyncClient(own, partial(_later, own), session)

    def run(self, case: Case) -> list[Mismatch]:
        """Play a case through both clients and all operations.

        :param case: the case.
        """
        found: list[Mismatch] = []
        for operation in CALLS:
            name, ends = f"case-{case.number}-{operation}", []
            for client in ("blocking", "asynchronous"):
                seen = self._play(case, name, partial(self._call, name, operation, client, case.stalls))
                problems = [*of_every_end(seen, secrets_of(operation)), *of_call(case, operation, seen), *self._strays()]
                found += [Mismatch(case, f"{client} {operation}", kind, what) for kind, what in problems]
                ends.append(seen)
            found += [Mismatch(case, operation, kind, what) for kind, what in of_pair(*ends)]
            if any(response.leftover for response in case.responses):
                # The next call over the same connection gets its own response.
                found += self.run(replace(case, responses=(plain(),)))
        return found

    def run_download(self, case: DownloadCase) -> list[Mismatch]:
        """Play a case of a download.

        :param case: the case.
        """
        name, target = f"case-{case.number}-download", Target()
        url = link_url(self._server.port, name)
        seen = self._play(case, name, partial(_download, case, self._settings[case.stalls], url, target))
        problems = [*of_every_end(seen, secrets_of("download")), *of_download(case, seen, bytes(target)), *self._strays()]
        return [Mismatch(case, "download", kind, what) for kind, what in problems]

    def _play(self, case: Case | DownloadCase, name: str, work: Callable[[], Any]) -> Seen:
        self._playing = case
        self._log.lines.clear()
        self._paused = 0.0
        seen = Seen(self._settings[case.stalls].timeout)
        started = time.monotonic()
        try:
            seen.result = work()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is judged)
            seen.error = error
        seen.seconds = time.monotonic() - started - self._paused
        self._loop.run_until_complete(self._pause_later(0))
        seen.logged = "\n".join(self._log.lines)
        requests, self._playing = self._server.requests, None
        seen.requests = len(requests)
        self._log.strays += [repr(one) for one in requests if name.encode() not in one or b"\r\ncookie:" in one.lower()]
        requests.clear()
        return seen

    def _call(self, name: str, operation: str, client: str, hurried: bool) -> Any:
        kind, _ = CALLS[operation]
        call = kind(source_url(name) if operation == "upload" else name, self._settings[hurried])
        blocking_client, async_client = self._clients[hurried]
        if client == "blocking":
            return blocking_client.perform(call)
        return self._loop.run_until_complete(async_client.perform(call))

    def _pause(self, seconds: float) -> None:
        """Wait until the last script is played to its end, so that a connection that it closes is closed: no end is by chance."""
        began = time.monotonic()
        assert self._turn.acquire(timeout=30), "a script does not end"
        self._turn.release()
        self._paused += time.monotonic() - began

    async def _pause_later(self, seconds: float) -> None:
        """As :meth:`_pause`; the loop runs meanwhile, because it closes the connections that the client has given up."""
        await asyncio.to_thread(self._pause, seconds)
        await asyncio.sleep(0.001)

    def _strays(self) -> Iterator[tuple[str, str]]:
        """What nobody asked for: other requests, requests with a cookie, and what is raised in the background."""
        while self._log.strays:
            yield "stray", self._log.strays.pop()

    def _serve(self, server: RawServer, connection: socket.socket) -> None:
        """Play the case to every request of a connection."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(30)
        while request := server.read_request(connection):
            with self._turn:
                if self._playing is None:
                    return
                start = re.search(rb"\r\nrange: bytes=(\d+)-", request, re.IGNORECASE)
                script = self._playing.response(len(server.requests) - 1, int(start[1]) if start else None).script
                for piece in script.pieces():
                    connection.sendall(piece)
                    time.sleep(script.pause)
                if script.resets:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if script.closes:
                    connection.close()
                    return


async def _later(settings: Settings) -> Settings:
    return settings


class _Log(logging.Handler):
    """Keeps what every logger and every warning says, and what is raised where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.strays: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _everything_said() -> Iterator[_Log]:
    root, log = logging.getLogger(), _Log()
    handlers, level = root.handlers, root.level
    root.handlers = [log]  # pytest's own would keep every record of every case
    root.setLevel(logging.DEBUG)
    excepthook, unraisable = threading.excepthook, sys.unraisablehook
    threading.excepthook = lambda args: log.strays.append(f"thread: {args.exc_value!r}")
    sys.unraisablehook = lambda args: log.strays.append(f"unraisable: {args.exc_value!r}")
    logging.captureWarnings(True)
    try:
        yield log
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = excepthook, unraisable
        root.handlers = handlers
        root.setLevel(level)
