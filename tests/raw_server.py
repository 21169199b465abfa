"""A server of raw bytes on loopback, for what no HTTP server would send."""

from __future__ import annotations

import itertools
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any

Handler = Callable[["RawServer", socket.socket], object]


class RawServer(socketserver.ThreadingTCPServer):
    """A server on loopback that hands each connection to ``handle``, in a thread of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handle: Handler) -> None:
        super().__init__(("127.0.0.1", 0), lambda connection, *_: handle(self, connection))  # type: ignore[arg-type]
        self.requests: list[bytes] = []
        self.connections = 0
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def process_request(self, *connection: Any) -> None:
        self.connections += 1
        super().process_request(*connection)

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *connection: Any) -> None:
        """Nothing: the client has closed."""

    def read_request(self, connection: socket.socket) -> bytes:
        """One request, which is added to ``requests``; empty if the client has closed."""
        with connection.makefile("rb") as reader:
            lines = list(itertools.takewhile(lambda line: line != b"\r\n", reader))
            if not lines:
                return b""
            lengths = [int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")]
            self.requests.append(b"".join(lines) + b"\r\n" + reader.read(sum(lengths)))
        return self.requests[-1]
