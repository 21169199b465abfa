"""What a response is on the wire: each reading that only some libraries have is none."""

from __future__ import annotations

import pytest

from airflow_provider_cloudstore.protocol.framing import IncompleteResponse, MalformedResponse, ResponseFilter
from airflow_provider_cloudstore.protocol.messages import MAX_HEAD_BYTES, MAX_LINE_BYTES, MAX_WIRE_BYTES

LINE = b"HTTP/1.1 200 OK\r\n"
COUNTED = LINE + b"Content-Length: 5\r\n\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"


def passed(response: bytes, size: int) -> tuple[bytes, ResponseFilter]:
    """What is passed on of a response that comes in pieces of a size."""
    found = ResponseFilter()
    return b"".join(found.feed(response[at : at + size]) for at in range(0, len(response), size)), found


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"X: a\r\n",
        b"X:\r\n",
        b"X: a\r\n b\r\n\tc\r\nY: \xe9\r\n",
        b"X: a\nY: b\n",
        b"Content-Length: 2\r\nX: a\r\n b\r\n",
        b"X: a\r\n" * 99,
    ],
)
def test_a_head_has_one_meaning_and_is_passed_on_as_it_is(fields: bytes) -> None:
    assert ResponseFilter().feed(LINE + fields + b"\r\n") == LINE + fields + b"\r\n"


@pytest.mark.parametrize(
    "head",
    [
        LINE + b" X: a\r\n\r\n",
        LINE + b"X : a\r\n\r\n",
        LINE + b"X\r\n\r\n",
        LINE + b": a\r\n\r\n",
        LINE + b"X: a\0b\r\n\r\n",
        LINE + b"X: a\rY: b\r\n\r\n",
        LINE + b"X: 1\rContent-Length: 3\r\n\r\nhello",
        LINE + b"Content-Length:\r\n 2\r\n\r\n",
        LINE + b"X: a\r\ntransfer-encoding: chun\r\n\tked\r\n\r\n",
        LINE + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        LINE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE + b"X: a\r\n" * 100 + b"\r\n",
        LINE + b"X: " + b"a" * MAX_HEAD_BYTES,
        b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_HEAD_BYTES // 26),
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"RTSP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 099 \r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_a_head_with_two_meanings_is_none(head: bytes) -> None:
    for size in (1 + len(head) // 1000, len(head)):
        with pytest.raises(MalformedResponse):
            passed(head, size)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (COUNTED + b"hello", COUNTED + b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + COUNTED + b"hello", COUNTED + b"hello"),
        (
            b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 70 + COUNTED + b"hello",
            COUNTED + b"hello",
        ),
        (
            CHUNKED + b'2;a="b c"\r\n{}\r\n0A \r\n0123456789\r\n0\r\nX: y\r\n\r\n',
            CHUNKED + b"2\r\n{}\r\n0A\r\n0123456789\r\n0\r\n\r\n",
        ),
        (CHUNKED + b"5; ext\r\nhello\r\n0\r\n\r\n", CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"),
        (
            LINE + b"X: y\r\ntransfer-encoding:\tChunked \t\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            LINE + b"X: y\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
    ],
)
def test_a_response_may_come_in_any_pieces_and_what_follows_it_is_not_passed_on(response: bytes, expected: bytes) -> None:
    for size in range(1, len(response) + 1):
        found, seen = passed(response, size)
        assert (found, seen.ended, seen.surplus) == (expected, True, False)
        seen.end()
    for behind in (passed(response + b"zz", 1), passed(response + b"zz", len(response) + 2)):
        assert (behind[0], behind[1].surplus) == (expected, True)


@pytest.mark.parametrize("response", [COUNTED + b"hello", CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"])
def test_a_response_that_ends_early_is_incomplete(response: bytes) -> None:
    for length in range(1, len(response)):
        with pytest.raises(IncompleteResponse):
            passed(response[:length], length)[1].end()


def test_a_body_without_a_length_ends_with_the_connection_and_nothing_at_all_is_no_response() -> None:
    found, seen = passed(LINE + b"\r\nhello", 3)
    seen.end()
    assert (found, seen.ended) == (LINE + b"\r\nhello", False)
    ResponseFilter().end()


def test_a_response_may_not_have_more_bytes_than_allowed() -> None:
    assert ResponseFilter(len(COUNTED) + 5).feed(COUNTED + b"hello")
    with pytest.raises(MalformedResponse):
        ResponseFilter(len(COUNTED) + 4).feed(COUNTED + b"hello")


@pytest.mark.parametrize(
    "body",
    [
        b"0x2\r\n",
        b"+2\r\n",
        b"-2\r\n",
        b" 2\r\n",
        b"2_0\r\n",
        b"\r\n",
        b"2\n",
        b"2\r\n{}x\r\n",
        b"2\r\n{}\n",
        b"0\r\nHTTP/1.1 200 OK\r\n",
        b"0\r\n X: y\r\n",
        b"2;" + b"a" * MAX_LINE_BYTES,
        b"2;" + b"a" * MAX_LINE_BYTES + b"\r\n{}\r\n",
        b"00000000000000002\r\n",
    ],
)
def test_what_only_some_read_as_chunks_is_none(body: bytes) -> None:
    for size in (1, len(CHUNKED + body)):
        with pytest.raises(MalformedResponse):
            passed(CHUNKED + body, size)


def test_a_head_may_take_its_limit_and_not_one_byte_more() -> None:
    line = b"a: " + b"x" * 60_000 + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\n" + line * 8
    head += b"a: " + b"x" * (MAX_HEAD_BYTES - len(head) - 3)
    reading = ResponseFilter(MAX_WIRE_BYTES)
    reading.feed(head)
    with pytest.raises(MalformedResponse):
        reading.feed(b"x")
