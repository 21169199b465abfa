"""What comes of a response, whatever bytes it consists of: the same for both clients and for downloads."""

from __future__ import annotations

import gzip
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, FailureKind, Response
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, UPLOAD_FROM_URL, Operation
from tests.clients.conftest import (
    CHUNKED,
    LINK_TOKEN,
    OK,
    WAYS,
    Authority,
    Send,
    Serve,
    Way,
    bodies,
    send_in,
    stay_open,
)
from tests.raw_server import RawServer
from tests.support import TOKEN, settings

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
SECRETS = (TOKEN, LINK_TOKEN, "link%2Btoken", "hunter2", "hunter3", "access_token", "Bearer")
SUBJECT = "https://user:hunter2@h/f?sig=hunter3"
ECHO = f"{TOKEN} {LINK_TOKEN} hunter3".encode()


def shows_no_secret(logged: pytest.LogCaptureFixture, outcome: Any = None) -> bool:
    return not any(secret in logged.text + getattr(outcome, "reason", "") for secret in SECRETS)


VALID = {
    "plain": OK,
    "no-reason": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",
    "empty-reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
    "close": HEAD + b"Connection: close\r\n\r\n{}",
    "version-1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "version-1.0-kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
    "empty-headers": HEAD + b"A:\r\nB:b\r\nB: \tc\t\r\nB: , ,d\r\n\r\n{}",
    "long-header": HEAD + b"X: " + b"x" * 60_000 + b"\r\n\r\n{}",
    "many-headers": HEAD + b"X: x\r\n" * 98 + b"\r\n{}",
    "no-charset": HEAD + b"Content-Type: text/plain; charset=\xff\xfe\r\n\r\n{}",
    "multipart": HEAD + b"Content-Type: multipart/mixed; boundary=x\r\n\r\n{}",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunk-extension": CHUNKED + b"02;a=b\r\n{}\r\n000;c\r\nTrailer: x\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 102 P\r\n\r\n" * 30 + b"HTTP/1.1 103 E\r\nLink: </x>\r\n\r\n" + OK,
}


@pytest.mark.parametrize("answer", VALID.values(), ids=VALID)
@pytest.mark.parametrize("pieces", ["at-once", "byte-by-byte"])
def test_a_response_that_is_valid_is_read(send: Send, serve: Serve, answer: bytes, pieces: str) -> None:
    sent = [answer] if pieces == "at-once" else [answer[at : at + 1] for at in range(len(answer))]
    assert bodies(send(settings(serve(lambda: iter(sent)).url))) == [b"{}"]


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n{}", 200, b"{}"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", 200, b"{}"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", 304, b""),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[%b\r\nContent-Length: 0\r\n\r\n" % ECHO, 302, b""),
        (b"HTTP/1.1 302 Found\r\nLocation: /\xe9\xff\r\nContent-Length: 0\r\n\r\n", 302, b""),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n{}", 200, b"{}"),
        (b"HTTP/1.1 426 No\r\nUpgrade: HTTP/3.0\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}", 426, b"{}"),
    ],
)  # fmt: skip
def test_a_response_to_a_call_is_taken_as_it_is(
    send_call: Send, serve: Serve, answer: bytes, status: int, body: bytes, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(answer)
    (outcome,) = send_call(settings(server.url))
    assert (outcome.status, outcome.body) == (status, body)
    assert len(server.requests) == 1  # no redirect is followed
    assert shows_no_secret(logged)


def test_the_body_is_what_came_and_a_repeated_or_folded_header_is_joined(send_call: Send, serve: Serve) -> None:
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nX-A:\t \xe9\r\nx-a: 2\r\nX-B: a\r\n b\r\nTransfer-Encoding: chunked\r\n"
    (outcome,) = send_call(settings(serve(head + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)).url))
    assert outcome.body == packed
    assert outcome.headers == {"content-encoding": "gzip", "x-a": "é, 2", "x-b": "a b", "transfer-encoding": "chunked"}


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"2; ext\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"2 ;ext\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b'2;a="b c"\r\n{}\r\n0\r\n\r\n',
        b"HTTP/1.1 200 O\0K\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["blank-before-extension", "blank-after-size", "quoted-extension", "nul-in-reason"],
)
def test_all_decide_alike_where_libraries_differ(serve: Serve, answer: bytes) -> None:
    decided = {}
    for name, way in WAYS.items():
        server = serve(answer)
        (outcome,) = send_in(way, settings(server.url), operation=UPLOAD_FROM_URL, subject=SUBJECT)
        decided[name] = outcome.body if isinstance(outcome, Response) else outcome.kind
        assert len(server.requests) == 1
    assert len(set(decided.values())) == 1, decided
    assert decided["blocking"] in (b"{}", FailureKind.OUTCOME_UNKNOWN)


TRUNCATED = {
    "nothing": b"",
    "status": b"HTTP/1.1 200",
    "header": b"HTTP/1.1 200 OK\r\nContent-Type: te",
    "no-blank-line": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n",
    "after-interim": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "switched": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + OK,
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    "chunk": CHUNKED + b"5\r\nhel",
    "no-last-chunk": CHUNKED + b"2\r\n{}\r\n",
    "last-chunk": CHUNKED + b"0005\r\nhello\r\n000",
    "end-of-last-chunk": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "feed-after-chunk": CHUNKED + b"5\r\nhello\n00\r\n\r\n",
    "longer-chunk": CHUNKED + b"5\r\nhello12000\r\n",
    "chunk-word": CHUNKED + b"2\r\n{}\r\nzz\r\n",
    "chunk-huge": CHUNKED + b"fffffffffffffffffffff\r\nhello",
    "length-behind-cr": b"HTTP/1.1 200 OK\r\nX: 1\rContent-Length: 3\r\n\r\nhello",
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "word-as-length": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "html": b"<html>%b</html>" % ECHO,
    "status-word": b"HTTP/1.1 %b OK\r\n\r\n" % ECHO,
}


@pytest.mark.parametrize("answer", TRUNCATED.values(), ids=TRUNCATED)
def test_a_response_whose_end_is_unknown_is_an_unknown_outcome(
    send: Send, serve: Serve, answer: bytes, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(answer)
    (outcome,) = send(settings(server.url), operation=UPLOAD_FROM_URL, subject=SUBJECT)
    assert not isinstance(outcome, Response)
    assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    assert len(server.requests) == 1
    assert shows_no_secret(logged, outcome)


MALFORMED = {
    "rtsp": b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "line-before": b"\r\n" + OK,
    "no-colon": HEAD + ECHO + b"\r\n\r\n{}",
    "blank-before-colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n" + ECHO + b": x\r\n\r\n{}",
    "blank-before-name": b"HTTP/1.1 200 OK\r\n " + ECHO + b": y\r\nContent-Length: 2\r\n\r\n{}",
    "folded-length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\n{}",
    "length-and-chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "junk-behind": OK + b"junk",
    "feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    "feeds-in-chunks": CHUNKED + b"2\n{}\n0\n\n",
    "header-of-10-MB": HEAD + b"X: " + b"x" * 10_000_000 + b"\r\n\r\n{}",
    "too-many-headers": HEAD + b"X: x\r\n" * 200 + b"\r\n{}",
    "too-many-interim": b"HTTP/1.1 102 Processing\r\n\r\n" * 100 + OK,
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_response_is_taken_whole_or_not_at_all_and_shows_no_secret(
    send: Send, serve: Serve, answer: bytes, logged: pytest.LogCaptureFixture
) -> None:
    server = serve(answer)
    (outcome,) = send(settings(server.url), operation=CREATE_DOWNLOAD_LINK, subject=SUBJECT)
    if isinstance(outcome, Response):
        assert (outcome.status, outcome.body) == (200, b"{}")
    else:
        assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    assert len(server.requests) == 1
    assert shows_no_secret(logged, outcome)


@pytest.mark.parametrize("operation", [CREATE_DOWNLOAD_LINK, UPLOAD_FROM_URL], ids=["get", "post"])
def test_no_log_shows_the_query_the_body_or_the_authorization_of_a_request(
    send: Send, serve: Serve, operation: Operation, logged: pytest.LogCaptureFixture
) -> None:
    assert bodies(send(settings(serve(OK).url), operation=operation, subject=SUBJECT)) == [b"{}"]
    assert logged.records
    assert shows_no_secret(logged)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", CHUNKED, HEAD + b"\r\n"])
def test_a_reset_is_no_end_of_a_body(send: Send, serve: Serve, head: bytes) -> None:
    (outcome,) = send(settings(serve(head + b"x", then=reset).url))
    assert not isinstance(outcome, Response)
    assert outcome.kind is FailureKind.OUTCOME_UNKNOWN


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_reset_is_no_end_of_a_body_over_tls_either_and_a_close_is_one_without_close_notify(
    send_call: Send, serve: Serve, authority: Authority, is_reset: bool
) -> None:
    def answer(own: RawServer, connection: socket.socket) -> None:
        inside = authority.server_context("localhost").wrap_socket(connection, server_side=True)
        own.read_request(inside)
        inside.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")
        with socket.socket(fileno=inside.detach()) as raw:
            if is_reset:
                reset(raw)

    server = serve(handler=answer)
    (outcome,) = send_call(settings(f"https://localhost:{server.port}", verify=authority.bundle))
    assert bodies([outcome]) == (["connection reset"] if is_reset else [b"{}"])


def test_a_body_of_very_many_chunks_is_read_to_its_end(send: Send, serve: Serve) -> None:
    server = serve(CHUNKED + b"1\r\na\r\n" * 200_000 + b"0\r\n\r\n")
    assert len(send(settings(server.url, timeout=100))[0].body) == 200_000


@pytest.mark.parametrize("extra", [b"", b"x"])
def test_a_response_to_a_call_of_exactly_one_mebibyte_is_read_and_one_byte_more_is_too_large(
    send_call: Send, serve: Serve, extra: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + len(extra))
    server = serve(head + b"x" * MAX_BODY_BYTES + extra, OK, then=stay_open)
    first, second = send_call(settings(server.url), 2)
    assert (len(first.body), first.too_large) == (MAX_BODY_BYTES, bool(extra))
    assert second.body == b"{}"


def forever(head: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            yield piece

    return pieces


ENDLESS = {
    "headers": forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000),
    "header": forever(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
    "status-line": forever(b"HTTP/1.1 200 ", b"x" * 65536),
    "interim": forever(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 3000),
    "body": forever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "redirect-body": forever(b"HTTP/1.1 302 Found\r\nLocation: ftp://h/x\r\n\r\n", b"x" * 65536),
    "chunks": forever(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "chunk-extension": forever(CHUNKED + b"5;", b"x" * 65536),
    "trailers": forever(CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
}


def resident() -> float:
    """MiB of memory that this process has now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024**2


@pytest.mark.parametrize(
    ("way", "pieces"),
    [
        pytest.param(way, pieces, id=f"{name}-{what}")
        for name, way in WAYS.items()
        for what, pieces in ENDLESS.items()
        if (name, what) != ("download", "chunks")  # a file may be of any size
    ],
)
def test_no_response_costs_more_memory_or_time_than_its_limit(way: Way, serve: Serve, pieces: Any) -> None:
    send_in(way, settings(serve(OK).url))  # what is loaded once is not what a response costs
    server = serve(pieces)
    peak = before = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident())

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.monotonic()
    (outcome,) = send_in(way, settings(server.url, timeout=2))
    took = time.monotonic() - began
    done.set()
    watching.join()
    assert took < 3
    assert peak - before < 16
    assert len(server.requests) == 1
    if not isinstance(outcome, Response):
        assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    elif way is not WAYS["download"]:
        assert (outcome.too_large, len(outcome.body)) == (True, MAX_BODY_BYTES)
