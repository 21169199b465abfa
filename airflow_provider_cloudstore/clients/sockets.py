"""Sockets that read responses within a deadline, through the filter that both clients share."""

from __future__ import annotations

import io
import socket
import ssl
from typing import Any

from airflow_provider_cloudstore.clients.exchange import InFlight, current
from airflow_provider_cloudstore.protocol import messages
from airflow_provider_cloudstore.protocol.framing import ResponseFilter


class _ResponseReader(io.RawIOBase):
    """The bytes of one response, which :class:`http.client.HTTPResponse` reads."""

    def __init__(self, raw: Any, sock: socket.socket, in_flight: InFlight) -> None:
        self._raw, self._sock, self._in_flight = raw, sock, in_flight
        self._filter = ResponseFilter(in_flight.max_bytes)
        self._passed = memoryview(b"")  # validated, and not read yet
        self._timeout = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._passed:
            if self._filter.ended:
                return 0
            if not (count := self._receive(buffer)):
                self._filter.end()
                return 0
            self._passed = memoryview(self._filter.feed(bytes(buffer[:count])))
            self._note_progress()
        count = min(len(buffer), len(self._passed))
        buffer[:count], self._passed = self._passed[:count], self._passed[count:]
        return count

    def _receive(self, buffer: Any) -> int:
        if (seconds := self._in_flight.time_left()) is not None:
            self._sock.settimeout(seconds)
        try:
            return int(self._raw.readinto(buffer))
        except ssl.SSLEOFError as error:
            if not error.reason:  # OpenSSL's report of a reset
                raise ConnectionResetError from None
            return 0  # without close_notify; treated as a close without TLS

    def _note_progress(self) -> None:
        state, seen = self._in_flight, self._filter
        if not state.connected:
            state.refused = 0 if messages.opens_tunnel(seen.status) else seen.status
            return
        state.status = seen.status
        if seen.ended:
            self._sock.settimeout(self._timeout)  # for the next request
            if seen.surplus or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
                self._sock.shutdown(socket.SHUT_RDWR)  # urllib3 sees that, and opens a new connection for the next request

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Responses:
    """What both classes of sockets have in common."""

    def makefile(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The file that a response is read from."""
        raw = socket.socket.makefile(self, "rb", buffering=0)
        return io.BufferedReader(_ResponseReader(raw, self, current.get()))


class ResponseSocket(_Responses, socket.socket):
    """A socket for HTTP without TLS."""


class TlsResponseSocket(_Responses, ssl.SSLSocket):
    """A socket for HTTP over TLS; set it as a context's ``sslsocket_class``."""
