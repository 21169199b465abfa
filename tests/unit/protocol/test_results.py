from __future__ import annotations

import gzip
import zlib
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES
from airflow_provider_cloudstore.protocol.results import Content, FolderDeletion, find_link, read_content
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.support import RECEIVED, response

TOKEN = Secret("s3cret/access+token")


def content(body: Any = b"", **headers: str) -> Content:
    return read_content(response(200, body, **headers))


def link(body: Any, *token_path: str, secrets: tuple[Secret, ...] = ()) -> Any:
    got = response(200, body)
    return find_link("f1", got, read_content(got).data, token_path, secrets)


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
    assert (got.is_error, got.message) == (True, "No such folder")


TOO_LARGE, DAMAGED = "a body of more than 1 MiB, which was cut off", "a body in an unknown content coding, or damaged"
BROKEN_JSON = "a body that begins like JSON and is not JSON"
WEB_PAGE = "a web page in place of the service's response"


@pytest.mark.parametrize(
    ("body", "headers", "problem"),
    [
        (b" " * (MAX_BODY_BYTES + 1), {}, TOO_LARGE),
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
    ],
)
def test_what_cannot_be_the_services_own_is_known_and_not_quoted(body: bytes, headers: dict[str, str], problem: str) -> None:
    got = content(body, **headers)
    assert (got.problem, got.is_web_page) == (problem, problem == WEB_PAGE)
    assert not (problem and got.message)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ({"code": 404}, 404), ({"code": 429.0}, 429),
        ({"status": "401"}, 401), ({"_status": " 500 "}, 500), ({"status": 200, "code": "599"}, 599),
        ({"_status": 404, "code": 500}, 404),
        ({"code": 399}, None), ({"code": 600}, None), ({"code": 4040}, None), ({"code": "404 Not Found"}, None),
        ({"code": [404]}, None), ({"result": 404}, None), ({"data": {"code": 404}}, None), ([404], None),
    ],
)  # fmt: skip
def test_a_number_from_400_to_599_is_the_status_of_an_error(data: Any, number: int | None) -> None:
    got = content(data)
    assert next(iter(got.stated_statuses), None) == number
    assert got.is_error is (number is not None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"response": "Could not\nfind it", "error": "x"}, "Could not find it"),
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
    ("body", "token"),
    [
        ({"download_token": "t"}, "t"),
        ({"data": {"token": "t"}}, "t"),
        ({"token": "worse", "download_token": "t"}, "t"),
        ({"token": "worse", "data": {"download_token": "t"}}, "t"),
        ({"data": {"token": "worse"}, "token": "t"}, "t"),
        ({"token": 12345}, "12345"),
        ({"data": {"download_url": "https://h/f?x=1&download_token=a%2Bb%3D#frag"}}, "a+b="),
        ({"url": "https://h/f?token=a+b=c"}, "a+b=c"),
        ({"url": "https://h/f?token=worse&download_token=t"}, "t"),
        ({"token": "t", "url": "https://h/f?token=worse"}, "t"),
        (b"bare-token\n", "bare-token"),
        ({"token": "a\ud800b"}, None),
        (b"two\nlines", None),
        ({}, None),
        *[({"token": nothing, "url": "https://h/f?token=t"}, "t") for nothing in ("", "null", 0, -1, True, None)],
        ({"token": "two words", "url": 5}, None),
        ({"data": "token"}, None),
    ],
)
def test_the_token_is_found_in_every_place_where_services_put_it(body: Any, token: str | None) -> None:
    found = link(body)
    assert (found.token if found else None) == token


@pytest.mark.parametrize(
    ("path", "token"),
    [("a.b", "t"), ("list.1.x", "u"), ("list.2.x", None), ("a.c", None), ("a.b.c", None), ("list.x", None), ("a", None)],
)
def test_a_token_path_is_the_only_place_where_the_token_is_looked_for(path: str, token: str | None) -> None:
    found = link({"a": {"b": "t"}, "list": [{}, {"x": "u"}], "token": "not this"}, *path.split("."))
    assert (found.token if found else None) == token


def test_a_link_has_the_url_of_the_answer_where_there_is_one() -> None:
    assert link({"token": "t", "data": {"download_url": "https://h/f?token=t"}}).url_with_token == "https://h/f?token=t"
    assert link({"token": "t", "url": "https://h/u"}).url_with_token == "https://h/u"
    assert link({"token": "t", "url": ""}).url_with_token is None


def test_a_token_that_is_a_url_is_the_url_of_the_link() -> None:
    url = "https://h/x/f1"
    for found in (link({"link": {"href": url}, "url": "https://h/page"}, "link", "href"), link(url.encode())):
        assert (found.token, found.url_with_token) == (url, url)


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({"expires_at": "2026-01-02 03:04:05"}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires_at": "2026-01-02T03:04:05+02:00"}, pendulum.datetime(2026, 1, 2, 1, 4, 5)),
        ({"expires": 1767323045}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": 60}, RECEIVED.add(seconds=60)),
        ({"expires_in": "60.5"}, RECEIVED.add(seconds=60.5)),
        ({"expires_in": 200_000_000}, RECEIVED.add(seconds=200_000_000)),
        ({"expires_at": "rubbish", "expires_in": 60}, RECEIVED.add(seconds=60)),
        ({"expires": 1767323045000}, None),
        ({"expires_at": True}, None),
        ({"expires_in": "2026-01-02"}, None),
        ({"expires": 10**400}, None),
        ({}, None),
    ],
)
def test_the_end_of_a_token_is_read_where_it_is_told_and_can_be_read(fields: dict[str, Any], ends: Any) -> None:
    assert link({"token": "t", **fields}).expires_at == ends
    assert link({"token": "t", "data": fields}).expires_at == ends
    assert not ends or link({"token": "t", **fields}).expires_at.timezone_name == "UTC"


@pytest.mark.parametrize("echo", ["s3cret/access+token", "prefix.s3cret/access+token"])
def test_an_access_token_that_comes_back_is_no_download_token(echo: str) -> None:
    for body in ({"token": echo}, {"url": f"https://h/f?token={echo}"}, echo.encode()):
        assert link(body, secrets=(TOKEN,)) is None
    assert link({"a": echo}, "a", secrets=(TOKEN,)) is None
    assert link({"token": echo, "data": {"token": "real"}}, secrets=(TOKEN,)).token == "real"


@pytest.mark.parametrize(
    "url",
    ["/relative?token=t", "h/f", "ftp://h/f", "https://", "https://h/a b", "https://h/\x7f", "https://h\\@evil/",
     "https://h/?access_token=s3cret%2Faccess%2Btoken"],
)  # fmt: skip
def test_a_url_that_must_not_be_handed_on_is_left_out(url: str) -> None:
    assert link({"token": "t", "url": url}, secrets=(TOKEN,)).url_with_token is None


def test_results_are_dicts_with_times_in_iso_8601_utc() -> None:
    made = link({"token": "t", "expires_in": 60})
    assert made.to_dict() == {
        "file_id": "f1", "token": "t", "url_with_token": None,
        "created_at": "2026-01-01T00:00:01Z", "expires_at": "2026-01-01T00:01:01Z",
    }  # fmt: skip
    assert link(b"t").to_dict()["expires_at"] is None
    deletion = FolderDeletion("d1", RECEIVED.in_timezone("Europe/Berlin"), None, existed=False)
    assert deletion.to_dict()["requested_at"] == "2026-01-01T00:00:01Z"


def test_a_link_does_not_print_its_token_and_names_its_secrets() -> None:
    made = link({"token": "hunter2", "url": "https://h/f?token=hunter2&sig=hunter3sig"})
    assert "hunter" not in repr(made)
    assert {secret.reveal() for secret in made.secrets} == {"hunter2", "hunter3sig", "token=hunter2&sig=hunter3sig"}
