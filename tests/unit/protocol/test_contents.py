from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.contents import Content, read_content
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES
from tests.support import response


def content(body: Any = b"", **headers: str) -> Content:
    return read_content(response(200, body, **headers))


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"", None),
        (b'{"a": [1, 2.5, "\xc3\xa9", null, true]}', {"a": [1, 2.5, "é", None, True]}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b"just words\n", "just words"),
        (b'"a string"', "a string"),
    ],
)
def test_a_body_is_json_or_text_in_utf_8_or_nothing(body: bytes, data: Any) -> None:
    got = content(body)
    assert (got.data, got.problem) == (data, "")


@pytest.mark.parametrize("odd", [b"NaN", b"1e400", b'"\\u0000"', b'"\\ud800"', b'"\xff"', b"[" * 300 + b"]" * 300, b'"a\nb"'])
def test_an_envelope_that_says_error_is_one_whatever_else_is_in_it(odd: bytes) -> None:
    got = content(b'{"x": ' + odd + b', "_status": "error", "response": "No such folder"}')
    assert (got.signs.is_error, got.message) == (True, "No such folder")


TOO_LARGE, DAMAGED = "a body of more than 1 MiB, which was cut off", "a body in an unknown content coding, or damaged"
BROKEN_JSON = "a body that begins like JSON and is not JSON"
XML = "XML in place of the service's response"
WEB_PAGE = "a web page in place of the service's response"


@pytest.mark.parametrize(
    ("body", "headers", "problem"),
    [
        (gzip.compress(bytes(MAX_BODY_BYTES + 1), mtime=0), {"content_encoding": "gzip"}, TOO_LARGE),
        (b"x", {"content_encoding": "br"}, DAMAGED),
        (b"{}", {"content_encoding": "gzip"}, DAMAGED),
        (gzip.compress(b'{"a": "b"}', mtime=0)[:-10], {"content_encoding": "gzip"}, DAMAGED),
        *[(body, {}, BROKEN_JSON) for body in (b"{broken", b'{"a": ', b"[", b"[" * 100_000, b'{"a": 1} extra')],
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
    ],
)
def test_what_cannot_be_the_services_own_is_known_and_not_quoted(body: bytes, headers: dict[str, str], problem: str) -> None:
    got = content(body, **headers)
    assert (got.problem, got.is_web_page) == (problem, problem in (WEB_PAGE, XML))
    assert not (problem and got.message)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ({"code": 404}, 404), ({"code": 429.0}, 429),
        ({"status": "401"}, 401), ({"_status": " 500 "}, 500), ({"status": 200, "code": "599"}, 599),
        ({"_status": 404, "code": 500}, 404),
        ({"result": 404}, 404), ({"data": {"code": 404}}, 404), ({"ocs": {"meta": {"statuscode": 404}, "data": []}}, 404),
        ([{"errorCode": 404}], 404), ({"Error": {"Code": 404}, "x": 1}, 404), ({"success": True, "code": 404}, 404),
        ({"code": [404]}, None), ({"data": {"code": 404}, "x": 1}, None), ([404], None),
    ],
)  # fmt: skip
def test_a_number_from_400_to_599_is_the_status_of_an_error(data: Any, number: int | None) -> None:
    got = content(data)
    assert next(iter(got.signs.statuses), None) == number
    assert got.signs.is_error is (number is not None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"response": "Could not\nfind it", "error": "x"}, "Could not find it (x)"),
        ({"success": False, "error": "ACTIVE_LIMIT", "detail": "Too many.", "data": None}, "Too many. (ACTIVE_LIMIT)"),
        ({"status": 500, "data": {"message": "Unknown"}}, "Unknown"),
        ({"status": "KO", "why": "no such file"}, "no such file"),
        ({"response": {"a": 1}, "message": "no"}, "no"),
        ({"response": " ", "msg": "no"}, "no"),
        ({"error": "no", "errors": ["other"]}, "no"),
        ({"error": {"code": 7, "message": "no"}}, "no"),
        ({"errors": [{"message": "no"}, "other"]}, "no"),
        (b"plain words", "plain words"),
        ([1], ""),
        (b"", ""),
    ],
)
def test_the_message_is_the_first_text_where_services_write_it_in_one_line(data: Any, message: str) -> None:
    assert content(data).message == message


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
def test_content_is_described_by_its_keys_and_never_by_its_values(data: Any, says: str) -> None:
    assert content(data).keys == says


@pytest.mark.parametrize(
    "data",
    [
        {"type": "error"}, {"state": "FAILED"}, {"status": "fatal"}, {"result": "nok"}, {"status": "error-rateLimit", "data": {}},
        {"success": 0}, {"is_success": 0}, {"ok": "0"}, {"success": "false"}, {"hasErrors": True}, {"data": {"status": "error"}},
        {"stat": "fail", "code": 1}, {"errcode": 40001}, {"errcode": 1}, {"ErrorCode": "1"}, {"isSuccess": False},
        {"errno": 1}, {"error_code": 1}, {"code": 40016}, {"statusCode": 16}, {"res_code": "INVALID"},
        {"code": False}, {"result": 2005},
        {"ocs": {"meta": {"status": "failure", "statuscode": 997}, "data": []}}, [{"Status": "Error"}], False, "error", "False",
    ],
)  # fmt: skip
def test_a_state_a_flag_a_code_or_a_bare_word_is_a_sign_of_an_error(data: Any) -> None:
    assert content(data).signs.is_error


@pytest.mark.parametrize("coding", ["UTF-8", "none", "binary"])
def test_a_coding_that_is_none_leaves_a_body_that_reads_as_it_is(coding: str) -> None:
    assert content(b'{"a": "\xc3\xa9"}', content_encoding=coding).data == {"a": "\xe9"}
    assert content(b"\x1f\x8b\x00", content_encoding=coding).problem == DAMAGED
