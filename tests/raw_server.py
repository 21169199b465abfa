"""A server of raw bytes on loopback, for what the emulator would not send."""

from __future__ import annotations

import itertools
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trustme

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\n{}"
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


def shut_down(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


def stay_open(connection: socket.socket) -> None:
    """Wait for the next request."""


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset, within TLS without a word of it."""
    with socket.socket(fileno=connection.detach()) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def close(connection: socket.socket) -> None:
    """Close a connection, within TLS without a word of it."""
    socket.socket(fileno=connection.detach()).close()


def slowly(seconds: float, *pieces: bytes) -> Callable[[], Iterator[bytes]]:
    """A response in pieces, with a pause before each."""

    def respond() -> Iterator[bytes]:
        for piece in pieces or (OK[:30], OK[30:]):
            time.sleep(seconds)
            yield piece

    return respond


class Authority:
    """A certificate authority, and the file with its certificate."""

    def __init__(self, folder: Path) -> None:
        self._ca, self.bundle = trustme.CA(), str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.bundle)

    def wrap(self, connection: socket.socket, name: str = "localhost") -> ssl.SSLSocket:
        """Begin TLS on a server's connection, with a certificate for that name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(name).configure_cert(context)
        return context.wrap_socket(connection, server_side=True)

    def respond(self, server: RawServer, connection: socket.socket, name: str = "files.test") -> None:
        """Respond to each request over TLS."""
        with self.wrap(connection, name) as over_tls:
            while server.read_request(over_tls):
                over_tls.sendall(OK)
