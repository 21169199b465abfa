"""What comes of a response over a socket; which bytes are one is tested with ``protocol/framing.py``."""

from __future__ import annotations

import gzip
import itertools
import socket
import struct
import time
import tracemalloc
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.calls import CreateDownloadLink, UploadFromUrl
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from tests.raw_server import RawServer
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import LINK_TOKEN, OK, Authority, Send, Serve, Way, download, send_once

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
SECRETS = (TOKEN, LINK_TOKEN, "link%2Btoken", "hunter2", "hunter3", "access_token", "Bearer")
SUBJECT = "https://user:hunter2@h/f?sig=hunter3"
ECHO = f"{TOKEN} {LINK_TOKEN} hunter3".encode()


def shows_no_secret(logged: pytest.LogCaptureFixture, reason: str = "") -> bool:
    return not any(secret in logged.text + reason for secret in SECRETS)


VALID = {
    "blank-behind-chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 102 P\r\n\r\n" * 30 + b"HTTP/1.1 103 E\r\nLink: </x>\r\n\r\n" + OK,
}


@pytest.mark.parametrize("response", VALID.values(), ids=VALID)
def test_a_valid_response_is_read_to_its_end(send: Send, serve: Serve, response: bytes) -> None:
    assert send(settings(serve(response).url)).body == b"{}"


def test_the_body_is_what_came_and_a_repeated_or_folded_header_is_joined(send_call: Send, serve: Serve) -> None:
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nX-A:\t \xe9\r\nx-a: 2\r\nX-B: a\r\n b\r\nContent-Length: %d\r\n\r\n"
    outcome = send_call(settings(serve(head % len(packed) + packed).url))
    assert outcome.body == packed
    joined = {"content-encoding": "gzip", "x-a": "é, 2", "x-b": "a b", "content-length": str(len(packed))}
    assert outcome.headers == joined


LOST = {
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    "length-behind-cr": b"HTTP/1.1 200 OK\r\nX: 1\rContent-Length: 3\r\n\r\nhello",
    "no-header": HEAD + ECHO + b"\r\n\r\n{}",
}


@pytest.mark.parametrize("response", LOST.values(), ids=LOST)
def test_a_response_that_is_incomplete_or_ambiguous_is_an_unknown_outcome(
    send: Send, serve: Serve, response: bytes, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(response)
    error = send(settings(server.url), UploadFromUrl, SUBJECT)
    assert error.sent is True
    assert len(server.requests) == 1
    assert shows_no_secret(logged, str(error))


@pytest.mark.parametrize("kind", [CreateDownloadLink, UploadFromUrl])
def test_no_log_shows_the_query_the_body_or_the_authorization_of_a_request(
    send: Send, serve: Serve, kind: Any, logged: pytest.LogCaptureFixture
) -> None:
    assert send(settings(serve(OK).url), kind, SUBJECT).body == b"{}"
    assert logged.records
    assert shows_no_secret(logged)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_body_without_a_length_ends_with_a_close_even_without_close_notify_but_not_with_a_reset(
    send_call: Send, serve: Serve, authority: Authority, is_reset: bool, over_tls: bool
) -> None:
    def respond(server: RawServer, connection: socket.socket) -> None:
        within = authority.wrap(connection, "localhost") if over_tls else connection
        server.read_request(within)
        within.sendall(UNTIL_CLOSED + b"{}")
        with socket.socket(fileno=within.detach()) as raw:
            if is_reset:
                reset(raw)

    port = serve(handler=respond).port
    outcome = send_call(settings(f"{'https' if over_tls else 'http'}://localhost:{port}", verify=authority.bundle))
    assert outcome.reason == "connection reset" if is_reset else outcome.body == b"{}"


ENDLESS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
    "interim": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 3000),
    "body": (UNTIL_CLOSED, b"x" * 65536),
    "redirect-body": (b"HTTP/1.1 302 Found\r\nLocation: ftp://h/x\r\n\r\n", b"x" * 65536),
}


@pytest.mark.parametrize(("head", "piece"), ENDLESS.values(), ids=ENDLESS)
def test_no_response_costs_more_memory_or_time_than_its_limit(way: Way, serve: Serve, head: bytes, piece: bytes) -> None:
    send_once(way, settings(serve(OK).url))  # what is loaded once is not what a response costs
    server = serve(lambda: itertools.chain([head], itertools.repeat(piece)))
    tracemalloc.start()
    began = time.monotonic()
    timeout = 2 if way is download else 30  # a file may be of any size; a call reads no more than its bytes
    outcome = send_once(way, settings(server.url, timeout=timeout))
    took, peak = time.monotonic() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 10
    assert peak < 16 * 1024**2
    assert len(server.requests) == 1
    if isinstance(outcome, Response):
        assert MAX_BODY_BYTES < len(outcome.body) < 2 * MAX_BODY_BYTES
