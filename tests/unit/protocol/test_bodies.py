from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.bodies import Body, read_body
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES
from tests.support import response


def body_of(raw: Any = b"", **headers: str) -> Body:
    return read_body(response(200, raw, **headers))


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"", None),
        (b'{"a": [1, 2.5, "\xc3\xa9", null, true]}', {"a": [1, 2.5, "é", None, True]}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b"just words\n", "just words"),
        (b'"a string"', "a string"),
        (b'"{\\"status\\": \\"error\\"}"', '{"status": "error"}'),
    ],
)
def test_a_body_is_json_or_text_in_utf_8_or_nothing(raw: bytes, data: Any) -> None:
    got = body_of(raw)
    assert (got.data, got.problem) == (data, "")


TOO_LARGE, DAMAGED = "a body of more than 1 MiB, which was cut off", "a body in an unknown content coding, or damaged"
BROKEN_JSON = "a body that begins like JSON and is not JSON"
XML = "XML in place of the service's response"
WEB_PAGE = "a web page in place of the service's response"


@pytest.mark.parametrize(
    ("raw", "headers", "problem"),
    [
        (gzip.compress(bytes(MAX_BODY_BYTES + 1), mtime=0), {"content_encoding": "gzip"}, TOO_LARGE),
        (b"x", {"content_encoding": "br"}, DAMAGED),
        (b"{}", {"content_encoding": "gzip"}, DAMAGED),
        (gzip.compress(b'{"a": "b"}', mtime=0)[:-10], {"content_encoding": "gzip"}, DAMAGED),
        *[(raw, {}, BROKEN_JSON) for raw in (b"{broken", b'{"a": ', b"[", b"[" * 100_000, b'{"a": 1} extra')],
        (b"<!DOCTYPE html><p>Sign in", {}, WEB_PAGE),
        (b"\xef\xbb\xbf<html>", {}, WEB_PAGE),
        (b"Sign in", {"content_type": "text/HTML; charset=utf-8"}, WEB_PAGE),
        (b"{{ title }} Sign in", {"content_type": "text/html"}, WEB_PAGE),
        (b"token123", {}, ""),
        (b'{"a": 1}', {"content_type": "text/html"}, ""),
        (gzip.compress(b'{"a": 1}', mtime=0), {"content_encoding": "gzip"}, ""),
        (zlib.compress(b'{"a": 1}'), {"content_encoding": "Deflate"}, ""),
        (b"", {"content_type": "text/html", "content_encoding": "br"}, ""),
        (b'<?xml version="1.0"?><a/>', {}, XML),
        (gzip.compress(b'{"status": "error"}', mtime=0), {}, "a body that is neither JSON nor text"),
        (b"\x00\x01\x02 binary", {}, "a body that is neither JSON nor text"),
    ],
)
def test_what_cannot_be_the_services_own_is_known(raw: bytes, headers: dict[str, str], problem: str) -> None:
    got = body_of(raw, **headers)
    assert (got.problem, got.is_page) == (problem, problem in (WEB_PAGE, XML))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"a": "hunter2", "data": {"b": "hunter2"}}, "it has the keys a, data, data.b"),
        ({"two words hunter2": 1}, "it has the keys ?"),
        ({str(number): 1 for number in range(30)}, "it has the keys " + ", ".join(map(str, range(20)))),
        ({}, "it is an empty JSON object"),
        ("hunter2", "its body is no JSON object"),
        (None, "its body is empty"),
    ],
)
def test_a_body_is_described_by_its_keys_and_never_by_its_values(data: Any, says: str) -> None:
    assert body_of(data).keys == says


@pytest.mark.parametrize("coding", ["UTF-8", "none", "binary"])
def test_a_coding_that_is_none_leaves_a_body_that_reads_as_it_is(coding: str) -> None:
    assert body_of(b'{"a": "\xc3\xa9"}', content_encoding=coding).data == {"a": "\xe9"}
    assert body_of(b"\x1f\x8b\x00", content_encoding=coding).problem == DAMAGED
