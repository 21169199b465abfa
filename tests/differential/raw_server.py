"""A server that says exactly the bytes it is told to, in threads of its own, and remembers who asked."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_NAME = re.compile(rb"case-[a-z0-9]+-[a-z]+")


@dataclass(frozen=True, slots=True)
class Script:
    """What goes over the wire for one request.

    :param pieces: the bytes, in the order and the pieces in which they are sent; it may be endless.
    :param closes: whether the connection ends after them.
    :param resets: whether it ends with a reset.
    :param pause: seconds between two pieces.
    """

    pieces: Callable[[], Iterable[bytes]] = field(repr=False)
    closes: bool = True
    resets: bool = False
    pause: float = 0.0


class RawServer:
    """The server, as a context manager.

    :param script: the script for the n-th request (from 0) under a name such as ``case-17-link``, which is in the
        request's query or body, and for the first byte of its ``Range``, if it has one.
    :ivar requests: how often each name asked.
    :ivar strays: requests that no operation would send: without a name, or with a cookie.
    """

    def __init__(self, script: Callable[[str, int, int | None], Script]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.requests: Counter[str] = Counter()
        self.strays: list[bytes] = []
        self._playing = 0
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed: the end
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(30)
        with connection, suppress(OSError):  # the client is gone, which is its right
            for request in _requests(connection):
                name = _NAME.search(request)
                if name is None or re.search(rb"\r\ncookie:", request, re.IGNORECASE):
                    self.strays.append(request[:2000])
                key = name.group().decode() if name else "stray"
                ranged = re.search(rb"\r\nrange: bytes=(\d+)-", request, re.IGNORECASE)
                script = self._script(key, self.requests[key], int(ranged[1]) if ranged else None)
                self.requests[key] += 1
                with self._at_work():
                    _play(script, connection)
                    if script.closes:
                        connection.close()
                        return

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._changed:
            self._playing += 1
        try:
            yield
        finally:
            with self._changed:
                self._playing -= 1
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until every script is played to its end: a connection that it closes is closed."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._playing, 30), "a script does not end"


def _requests(connection: socket.socket) -> Iterator[bytes]:
    received = b""
    while True:
        while (end := received.find(b"\r\n\r\n")) < 0:
            if not (data := connection.recv(65536)):
                return
            received += data
        length = re.search(rb"\r\ncontent-length: *(\d+)", received[: end + 2], re.IGNORECASE)
        end += 4 + (int(length.group(1)) if length else 0)
        while len(received) < end:
            if not (data := connection.recv(65536)):
                return
            received += data
        yield received[:end]
        received = received[end:]


def _play(script: Script, connection: socket.socket) -> None:
    for piece in script.pieces():
        connection.sendall(piece)
        if script.pause:
            time.sleep(script.pause)
    if script.resets:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
