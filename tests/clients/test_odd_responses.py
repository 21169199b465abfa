"""What no answer may do to either client, whatever bytes it consists of."""

from __future__ import annotations

import gzip
import logging
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore.protocol import errors, messages
from airflow_provider_cloudstore.protocol.content import read_content
from airflow_provider_cloudstore.protocol.failures import CallContext, Failure, classify_response
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.support import TOKEN, settings

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[other]"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def bodies(outcomes: list[Response | TransportFailure]) -> list[Any]:
    return [outcome.body if isinstance(outcome, Response) else outcome.reason for outcome in outcomes]


def stay_open(connection: socket.socket) -> None:
    """The server's side waits for the next request."""


@pytest.mark.parametrize("location", [b"http://[bad", b"/\xe9\xff", b"http://h:99999999/", b"//", b"\x00", b"http://h/%zz\x7f"])
def test_a_redirect_is_a_response_and_nobody_resolves_it(send: Any, serve: Any, location: bytes) -> None:
    server = serve(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")
    outcome = send(settings(server.url))[0]
    if location == b"\x00" and isinstance(outcome, TransportFailure):  # no octet of a header (RFC 9110 section 5.5)
        assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    else:
        verdict = classify_response(CallContext(DELETE_FOLDER), outcome, read_content(outcome))
        assert isinstance(verdict, Failure)
        assert verdict.error is errors.RedirectError
    assert len(server.requests) == 1


def test_the_body_is_what_came_and_a_repeated_header_is_joined(send: Any, serve: Any) -> None:
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nX-A:\t \xe9 \t\r\nx-a: 2\r\n"
    server = serve(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed))
    outcome = send(settings(server.url))[0]
    assert outcome.body == packed
    assert outcome.headers == {"content-encoding": "gzip", "x-a": "é, 2", "transfer-encoding": "chunked"}


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd", b"deflate", b"punycode"])
def test_a_content_coding_is_not_undone_and_cannot_fail(send: Any, serve: Any, coding: bytes) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\nContent-Length: 5\r\n\r\nplain")
    assert bodies(send(settings(server.url))) == [b"plain"]


def test_a_cookie_is_not_kept(send: Any, serve: Any) -> None:
    server = serve(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nSet-Cookie: \xff=\x01;expires=x\r\nContent-Length: 0\r\n\r\n", then=stay_open
    )
    send(settings(server.url), 2)
    assert len(server.requests) == 2
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize(
    "before",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n" * 30, b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n"],
)
def test_interim_responses_are_passed_over_and_no_answer_is_taken_for_another(send: Any, serve: Any, before: bytes) -> None:
    server = serve(before + OK, before + OTHER, then=stay_open)
    assert bodies(send(settings(server.url), 2)) == [b"{}", b"[other]"]
    assert (len(server.requests), server.connections) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + OK,
        b"HTTP/1.1 102 Processing\r\n\r\n" * (messages.MAX_INTERIM_RESPONSES + 1) + OK,
    ],
    ids=["101", "too-many"],
)
def test_what_is_no_final_response_is_an_unknown_outcome(send: Any, serve: Any, answer: bytes) -> None:
    outcome = send(settings(serve(answer).url))[0]
    assert outcome.kind is FailureKind.OUTCOME_UNKNOWN


@pytest.mark.parametrize("late", [OTHER, OTHER[:20], b"x", b""], ids=["response", "half", "byte", "end"])
@pytest.mark.parametrize("at_once", [True, False], ids=["with-the-answer", "while-idle"])
def test_a_connection_on_which_something_came_is_not_used_again(send: Any, serve: Any, late: bytes, at_once: bool) -> None:
    answered, sent = threading.Event(), threading.Event()

    def more(connection: socket.socket) -> None:
        answered.wait(5)
        if not at_once and server.connections == 1:
            connection.sendall(late)
        if not late:
            connection.shutdown(socket.SHUT_RDWR)
        sent.set()

    def between() -> None:
        answered.set()
        assert sent.wait(5)

    server = serve(OK + (late if at_once else b""), OK, then=more)
    first, second = bodies(send(settings(server.url, timeout=5), 2, between=between))
    assert first == b"{}" or (at_once and first == "the response is not valid HTTP")
    assert second == b"{}"
    assert (len(server.requests), server.connections) == (2, 2)


def test_a_connection_that_was_read_to_the_end_is_used_again(send: Any, serve: Any) -> None:
    chunked = CHUNKED + b"2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n"
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    server = serve(OK, chunked, empty, OK, then=stay_open)
    assert bodies(send(settings(server.url), 4)) == [b"{}", b"{}", b"", b"{}"]
    assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2097152\r\n\r\n" + b"x" * 2097152,
        b"HTTP/1.1 200 OK\r\nnocolon\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        CHUNKED + b"zz\r\n",
    ],
    ids=["limit", "header", "framing", "chunk"],
)
def test_a_connection_that_was_not_read_to_the_end_is_not_used_again(send: Any, serve: Any, answer: bytes) -> None:
    server = serve(answer, OK, then=stay_open)
    assert bodies(send(settings(server.url), 2))[1] == b"{}"
    assert (len(server.requests), server.connections) == (2, 2)


MALFORMED = {
    "nothing": b"",
    "no-http": b"no http at all\r\n\r\n",
    "0.9": b"<html>hi</html>",
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http2": b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "rtsp": b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "rtsp-after-interim": b"HTTP/1.1 103 Early Hints\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "rtsp-interim": b"RTSP/1.0 103 Early Hints\r\n\r\n" + OK,
    "ice": b"ICE/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-1.10": b"HTTP/1.10 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-1.": b"HTTP/1. 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "http-2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "line-before": b"\r\n" + OK,
    "feed-before": b"\n" + OK,
    "blank-before": b" " + OK,
    "two-blanks": b"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "tab-before-status": b"HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "tab-after-status": b"HTTP/1.1 200\tOK\r\nContent-Length: 2\r\n\r\n{}",
    "cr-in-reason": b"HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\n{}",
    "status-0200": b"HTTP/1.1 0200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "status-plus": b"HTTP/1.1 +200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "204-with-length": b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}",
    "204-chunked": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "status-word": b"HTTP/1.1 abc OK\r\n\r\n",
    "status-099": b"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n",
    "status-1000": b"HTTP/1.1 1000 No\r\nContent-Length: 0\r\n\r\n",
    "no-colon": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno colon\r\n\r\n{}",
    "no-name": b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\n{}",
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "negative-length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    "word-length": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "length-and-chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "unknown-coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "cut-status": b"HTTP/1.1 200",
    "cut-status-line": b"HTTP/1.1 200 OK",
    "no-headers": b"HTTP/1.1 200 OK\r\n",
    "cut-header": b"HTTP/1.1 200 OK\r\nContent-Type: te",
    "no-blank-line": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n",
    "bare-cr": b"HTTP/1.1 200 OK\r\r",
    "cut-after-interim": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "cut-last-chunk": CHUNKED + b"2\r\n{}\r\n0\r\n",
    "cut-body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    "cut-chunk": CHUNKED + b"5\r\nhel",
    "no-last-chunk": CHUNKED + b"2\r\n{}\r\n",
    "chunk-word": CHUNKED + b"zz\r\n",
    "chunk-negative": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "chunk-huge": CHUNKED + b"fffffffffffffffffffff\r\nhello",
    "chunk-hexadecimal": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "chunk-plus": CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n",
    "chunk-in-feeds": CHUNKED + b"2\n{}\n0\n\n",
    "chunk-too-long": CHUNKED + b"2\r\n{}xx\r\n0\r\n\r\n",
    "chunk-extension-of-70-KB": CHUNKED + b"2;" + b"a" * 70_000 + b"\r\n{}\r\n0\r\n\r\n",
    "no-end-of-trailers": CHUNKED + b"2\r\n{}\r\n0\r\n" + OTHER,
    "nul-in-header": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "folded-length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\n{}",
    "blank-before-colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
    "blank-before-name": b"HTTP/1.1 200 OK\r\n X: y\r\nContent-Length: 2\r\n\r\n{}",
    "header-of-10-MB": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000_000 + b"\r\n\r\n",
    "too-many-headers": b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200 + b"\r\n",
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_an_answer_that_is_not_http_is_an_unknown_outcome_in_words_of_our_own(
    send: Any, serve: Any, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, ""):
        server = serve(answer)
        outcome = send(settings(server.url), operation=CREATE_DOWNLOAD_LINK)[0]
    assert isinstance(outcome, TransportFailure)
    assert outcome.kind is FailureKind.OUTCOME_UNKNOWN
    assert "broken (" not in outcome.reason
    assert len(server.requests) == 1
    assert TOKEN not in outcome.reason
    assert TOKEN not in caplog.text


def test_a_body_of_very_many_chunks_is_read_to_its_end(send: Any, serve: Any) -> None:
    server = serve(CHUNKED + b"1\r\na\r\n" * 200_000 + b"0\r\n\r\n")
    assert len(send(settings(server.url, timeout=100))[0].body) == 200_000


@pytest.mark.parametrize("body", [b"", b"tok-0123456789abcd"], ids=["no-body", "body"])
@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
def test_a_reset_does_not_end_a_body_of_unknown_length(send: Any, serve: Any, head: bytes, body: bytes) -> None:
    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    server = serve(head + body, then=reset)
    outcome = send(settings(server.url))[0]
    assert isinstance(outcome, TransportFailure)
    assert (outcome.kind, outcome.reason) == (FailureKind.OUTCOME_UNKNOWN, "connection reset")


def test_a_folded_header_is_one_line(send: Any, serve: Any) -> None:
    server = serve(b"HTTP/1.1 503 No\r\nRetry-After:\r\n 7\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n")
    assert send(settings(server.url))[0].headers == {"retry-after": "7", "x": "a b", "content-length": "0"}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 98 + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=\xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_http_is_read_by_both_clients(send: Any, serve: Any, answer: bytes) -> None:
    assert bodies(send(settings(serve(answer).url))) == [b"{}"]


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n{}", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n{}", 304, b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}junk", 200, b"{}"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}\r\n", 200, b"{}"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", 200, b"{}"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 1000], ids=["at-once", "byte-by-byte"])
def test_what_comes_behind_a_whole_response_takes_nothing_from_it(
    send: Any, serve: Any, answer: bytes, status: int, body: bytes, pieces: int
) -> None:
    sent = [answer] if pieces == 1 else [answer[at : at + 1] for at in range(len(answer))]
    closed = threading.Event()

    def close(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        closed.set()

    server = serve(lambda: iter(sent), OK, then=close)
    found = send(settings(server.url), 2, between=closed.wait)  # a close that crosses a request is a lost response
    assert [(one.status, one.body) for one in found] == [(status, body), (200, b"{}")]
    assert len(server.requests) == 2


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
    "large-interim": forever(b"", b"HTTP/1.1 102 Processing\r\nX: " + b"x" * 60_000 + b"\r\n\r\n"),
    "body": forever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "redirect-body": forever(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", b"x" * 65536),
    "error-body": forever(b"HTTP/1.1 500 Oh\r\n\r\n", b"x" * 65536),
    "chunks": forever(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "chunk-extension": forever(CHUNKED + b"5;", b"x" * 65536),
    "trailers": forever(CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
    "trickle": forever(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", b""),
}


def resident() -> float:
    """MiB of memory that this process has now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024**2


@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
def test_no_answer_costs_more_memory_or_time_than_its_limit(send: Any, serve: Any, pieces: Any) -> None:
    send(settings(serve(OK).url))  # what is loaded once is not what an answer costs
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
    outcome = send(settings(server.url, timeout=2))[0]
    took = time.monotonic() - began
    done.set()
    watching.join()
    assert took < 3
    assert peak - before < 16
    assert len(server.requests) == 1
    if isinstance(outcome, Response):
        assert (outcome.too_large, len(outcome.body)) == (True, MAX_BODY_BYTES)
    else:
        assert outcome.kind is FailureKind.OUTCOME_UNKNOWN


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "untrusted"])
def test_what_fails_in_a_tunnel_is_not_blamed_on_the_proxys_response(send: Any, serve: Any, closes: bool) -> None:
    host = "files.example.com"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(host).configure_cert(tls)

    def tunnel(own: Any, connection: socket.socket) -> None:
        own.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if not closes:
            tls.wrap_socket(connection, server_side=True)

    proxy = Secret(f"http://127.0.0.1:{serve(handler=tunnel).port}")
    outcome = send(settings(f"https://{host}", proxy=proxy))[0]
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "HTTP 200" not in outcome.reason
    assert closes or "TLS certificate verification failed" in outcome.reason
