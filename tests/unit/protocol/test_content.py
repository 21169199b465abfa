from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol.content import Content, read_content
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response

NOW = pendulum.datetime(2026, 1, 1)


def content(body: Any = b"", **headers: str) -> Content:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_content(
        Response(200, {name.replace("_", "-"): value for name, value in headers.items()}, raw, NOW.timestamp(), NOW.timestamp())
    )


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b"", None),
        (b"\xef\xbb\xbf", None),
        (b"null", None),
        (b'{"a": [1, 2.5, "\xc3\xa9", null, true]}', {"a": [1, 2.5, "é", None, True]}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": 1}\x00\x00', {"a": 1}),
        (b'{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        (b"just words\n", "just words"),
        (b'"a string"', "a string"),
        (b'{"x": Infinity}', {"x": float("inf")}),
        (b'{"x": "\\ud800"}', {"x": "\ud800"}),
        (b"9" * 4_500, "9" * 4_500),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_body_is_whatever_pythons_json_reads_or_text_or_nothing(body: bytes, data: Any) -> None:
    assert content(body) == Content(body.decode("utf-8", "replace").strip("\ufeff\x00 \r\n"), data)


@pytest.mark.parametrize(
    "odd", [b"NaN", b"1e400", b'"\\u0000"', b'"\\ud800"', b'"\x00"', b"9" * 4_500, b"[" * 300 + b"]" * 300, b'"a\nb"']
)
def test_an_envelope_that_says_error_is_one_whatever_else_is_in_it(odd: bytes) -> None:
    got = content(b'{"x": ' + odd + b', "_status": "error", "response": "No such folder"}')
    assert (got.is_error, got.message) == (True, "No such folder")


@pytest.mark.parametrize(
    ("label", "body", "text"),
    [
        ("iso-8859-1", b"caf\xe9", "café"),
        ("windows-1252", b"\x80", "€"),
        ("UTF-8", b"caf\xc3\xa9", "café"),
        ("utf-16", b"caf\xc3\xa9", "café"),
        ("no-such-charset", b"caf\xc3\xa9", "café"),
        ("base64", b"caf\xc3\xa9", "café"),
        ("utf-8", b"caf\xe9", "caf\ufffd"),
        ("iso-8859-1", b"\xef\xbb\xbfcaf\xc3\xa9", "café"),
    ],
)
def test_a_charset_that_is_known_is_used_and_any_other_reads_as_utf_8(label: str, body: bytes, text: str) -> None:
    assert content(body, content_type=f"text/plain; Charset={label}").data == text


def test_a_body_in_a_content_coding_that_everybody_knows_is_read() -> None:
    body = b'{"a": 1}'
    for coded, coding in [
        (gzip.compress(body, mtime=0), "gzip"),
        (gzip.compress(body, mtime=0), "x-gzip"),
        (zlib.compress(body), "Deflate"),
        (body, "identity"),
        (body, ""),
    ]:
        assert content(coded, content_encoding=coding).data == {"a": 1}, coding
    assert content(b"", content_encoding="br") == Content()


@pytest.mark.parametrize(
    ("body", "coding", "problem"),
    [
        (b'{"a": 1}', "br", "a body in a content coding that was not requested"),
        (b'{"a": 1}', "gzip", "a body that is not complete gzip"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-4], "gzip", "a body that is not complete gzip"),
        (zlib.compress(b"x" * 1000)[:-4], "deflate", "a body that is not complete deflate"),
        (gzip.compress(b"x" * (MAX_BODY_BYTES + 1), mtime=0), "gzip", "a body of more than 1024 KiB, which was cut off"),
        (gzip.compress(b"{", mtime=0) + gzip.compress(b"}", mtime=0), "gzip", "a body that is not complete gzip"),
        (
            gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
            "gzip, gzip",
            "a body in a content coding that was not requested",
        ),
    ],
)
def test_a_body_that_cannot_be_decoded_is_not_the_services_own(body: bytes, coding: str, problem: str) -> None:
    assert content(body, content_encoding=coding) == Content(problem=problem)


@pytest.mark.parametrize(
    "body",
    [b"[" + b"[]," * 100_000 + b"0]", b'[{"a":0}' + b',{"a":0}' * 60_000 + b"]", b"[0" + b",0" * 100_001 + b"]"],
    ids=["lists", "objects", "numbers"],
)
def test_a_body_whose_values_would_fill_the_memory_is_not_read(body: bytes) -> None:
    assert content(body) == Content(problem="a body of more than 100,000 JSON values")


def test_a_body_that_was_cut_off_is_not_the_services_own() -> None:
    assert content(b" " * (MAX_BODY_BYTES + 1)) == Content(problem="a body of more than 1024 KiB, which was cut off")


@pytest.mark.parametrize("body", [b"{broken", b'{"a": ', b"[", b"[" * 100_000, b"{'a': 1}", b'{"a": 1} extra'])
def test_what_begins_like_json_and_is_none_is_not_the_services_own(body: bytes) -> None:
    assert content(body).problem == "a body that begins like JSON and is not JSON"


@pytest.mark.parametrize(
    ("body", "headers", "page"),
    [
        (b"<!DOCTYPE html><p>Sign in", {}, True),
        (b"\xef\xbb\xbf<html>", {}, True),
        (b"<?xml version='1.0'?><Error/>", {}, True),
        (b"<!-- maintenance --><h1>", {"content_type": "text/plain"}, True),
        (gzip.compress(b"<html>", mtime=0), {"content_encoding": "gzip"}, True),
        (b"{{ title }} Sign in", {"content_type": "text/html"}, True),
        (b"Sign in", {"content_type": " text/HTML; charset=utf-8"}, True),
        (b"token123", {}, False),
        (b'{"a": 1}', {"content_type": "text/html"}, False),
        (b"", {"content_type": "text/html"}, False),
    ],
)
def test_a_web_page_is_known_but_json_with_a_wrong_type_is_not_taken_for_one(
    body: bytes, headers: dict[str, str], page: bool
) -> None:
    got = content(body, **headers)
    assert (got.is_web_page, bool(got.problem)) == (page, page)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ({"code": 404}, 404), ({"status": "401"}, 401), ({"_status": " 500 "}, 500), ({"code": 403.0}, 403),
        ({"status": 200, "code": "599"}, 599), ({"_status": 404, "code": 500}, 404),
        ({"code": 399}, None), ({"code": 600}, None), ({"code": 4040}, None), ({"code": "404 Not Found"}, None),
        ({"code": True}, None), ({"code": [404]}, None), ({"result": 404}, None), ({"data": {"code": 404}}, None),
        ({"code": 10**4000}, None), ({"code": float("nan")}, None), ([404], None), ("404", None), (404, None), (None, None),
    ],
)  # fmt: skip
def test_a_number_from_400_to_599_is_the_status_of_an_error(data: Any, number: int | None) -> None:
    got = content(data)
    assert next(iter(got.stated_statuses), None) == number
    assert got.is_error is (number is not None)


@pytest.mark.parametrize("value", [None, "", " ", False, 0, 0.0, "0", "none", "None", "ok", [], {}])
@pytest.mark.parametrize("key", ["error", "errors"])
def test_an_error_that_says_nothing_is_none(key: str, value: Any) -> None:
    assert not content({key: value}).mentions_error


@pytest.mark.parametrize("data", [None, "error", ["error"], {}, {"data": {"status": "error", "error": "x"}}, {"Error": "x"}])
def test_only_the_top_level_of_a_json_object_says_that_something_failed(data: Any) -> None:
    assert not content(data).is_error
    assert not content(data).mentions_error


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"response": "Could not\nfind it", "error": "x"}, "Could not find it"),
        ({"response": {"a": 1}, "message": "no"}, "no"),
        ({"response": " ", "msg": "no"}, "no"),
        ({"error": "no", "errors": ["other"]}, "no"),
        ({"error": {"code": 7, "message": "no"}}, "no"),
        ({"errors": [{"message": "no"}, "other"]}, "no"),
        ({"errors": [[["too deep"]]]}, ""),
        ({"error": True, "data": {"message": "elsewhere"}}, ""),
    ],
)
def test_the_message_is_the_first_text_where_services_write_it(data: Any, message: str) -> None:
    assert content(data).message == message


def test_the_services_message_is_one_line_and_no_markup() -> None:
    assert content({"response": "a  b\n" * 200}).message == ("a b " * 200).strip()
    assert content(b"plain words").message == "plain words"
    assert content(b"\x1b[31mred\x00 \xe2\x80\xaegnp").message == r"\x1b[31mred\x00 \u202egnp"
    assert content(b'{"response": "half \\ud800 a character"}').message == r"half \ud800 a character"
    assert content(b"<html>page</html>").message == ""
    assert content([1]).message == ""
    assert content({"response": 5}).message == ""
    assert content(b"").message == ""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"a": "hunter2", "data": {"b": "hunter2"}}, "it has the keys a, data, data.b"),
        ({"two words hunter2": 1}, "it has the keys ?"),
        ({str(number): 1 for number in range(30)}, "it has the keys " + ", ".join(map(str, range(20)))),
        ({}, "it is an empty JSON object"),
        ([1], "its body is a JSON list"),
        ("hunter2", "its body is text"),
        (None, "its body is empty"),
    ],
)
def test_content_is_described_by_its_keys_and_never_by_its_values(data: Any, says: str) -> None:
    assert content(data).keys == says
