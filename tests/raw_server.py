"""A server of raw bytes on loopback, for what no HTTP server would send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Handler = Callable[["RawServer", socket.socket], object]


class RawServer:
    """A server that does to each connection what it is told, each in a thread of its own.

    :ivar requests: the requests read so far.
    :ivar connections: how many connections were made.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.requests: list[bytes] = []
        self.connections = 0
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed: the test is over
            while True:
                connection = self._listening.accept()[0]
                self.connections += 1
                self._open.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:  # the client has gone
            self._handler(self, connection)
        self._open.discard(connection)

    def read_request(self, connection: socket.socket) -> bytes:
        """One request, noted; empty where the client has closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(body) < sum(lengths):
            body += connection.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        return self.requests[-1]

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
