"""What a head and a chunked body are: each reading that only some libraries have is none."""

from __future__ import annotations

import pytest

from airflow_provider_cloudstore.protocol.framing import Chunks, is_head
from airflow_provider_cloudstore.protocol.messages import MAX_LINE_BYTES

LINE = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "fields",
    [b"", b"X: a\r\n", b"X:\r\n", b"X: a\r\n b\r\n\tc\r\nY: \xe9\r\n", b"X: a\nY: b\n", b"Content-Length: 2\r\nX: a\r\n b\r\n"],
)
def test_a_head_has_one_meaning(fields: bytes) -> None:
    assert is_head(LINE + fields + b"\r\n")


@pytest.mark.parametrize(
    "fields",
    [
        b" X: a\r\n",
        b"X : a\r\n",
        b"X\r\n",
        b": a\r\n",
        b"X: a\0b\r\n",
        b"X: a\rY: b\r\n",
        b"Content-Length:\r\n 2\r\n",
        b"X: a\r\ntransfer-encoding: chun\r\n\tked\r\n",
    ],
)
def test_a_head_with_two_meanings_is_none(fields: bytes) -> None:
    assert not is_head(LINE + fields + b"\r\n")


BODY = b"2;a=b\r\n{}\r\n0A \r\n0123456789\r\n0\r\nX: y\r\n\r\n"


def test_a_chunked_body_may_come_in_any_pieces_and_anything_may_come_behind_it() -> None:
    for size in range(1, len(BODY)):
        chunks = Chunks()
        assert all(chunks.accept(BODY[at : at + size]) for at in range(0, len(BODY), size))
        assert chunks.accept(b"zz")


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
    assert not Chunks().accept(body)
    chunks = Chunks()
    assert not all(chunks.accept(body[at : at + 1]) for at in range(len(body)))
