"""A gateway before an object store, which can be closed, and which can say that every client's credentials have expired."""

from __future__ import annotations

import http.client
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message><RequestId>1</RequestId></Error>"
)
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class Gateway:
    """Hands requests on to a port of loopback.

    :param port: the store's port.
    """

    def __init__(self, port: int) -> None:
        self._store = port
        self._server: _Server | None = None
        self.expired = False
        """Whether it refuses all credentials as S3 does when a session's have expired."""
        self.refused = 0
        """How many requests it has refused so."""
        self.port = 0

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Listen, at the same port as before."""
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Listen no longer, and cut every connection: clients are refused."""
        server, self._server = self._server, None
        if server:
            server.shutdown()
            server.server_close()
            server.cut()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._response
                raise AttributeError(name)

            def _response(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if gateway.expired:
                    gateway.refused += 1
                    self._send(403, [("Content-Type", "application/xml")], _EXPIRED)
                    return
                store = http.client.HTTPConnection("127.0.0.1", gateway._store, timeout=120)
                try:
                    store.request(self.command, self.path, body, dict(self.headers.items()))
                    answer = store.getresponse()
                    self._send(answer.status, answer.getheaders(), answer.read())
                finally:
                    store.close()

            def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                length = dict(headers).get("Content-Length") if self.command == "HEAD" and status < 300 else str(len(body))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was cut is no error."""

    def cut(self) -> None:
        """End every connection, in the middle of a request too."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended by itself
