from __future__ import annotations

import json
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol.answers import (
    FolderDeletion,
    RemoteUpload,
    error_words,
    find_link,
    is_web_page,
    keys_of,
    parse_body,
    service_words,
)
from airflow_provider_cloudstore.protocol.values import Response

SENT = pendulum.datetime(2026, 1, 1)
GOT = pendulum.datetime(2026, 1, 1, 0, 0, 1)


def response(body: Any = b"", **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(200, {name.replace("_", "-"): value for name, value in headers.items()}, raw, SENT, GOT)


def link(body: Any, *token_path: str) -> Any:
    got = response(body)
    return find_link("f1", got, parse_body(got), token_path)


@pytest.mark.parametrize(
    ("body", "parsed"),
    [
        (b"", None),
        (b"  \r\n", None),
        (b"null", None),
        (b'{"a": [1, 2.5, "\xc3\xa9", null, true]}', {"a": [1, 2.5, "é", None, True]}),
        (b"\xef\xbb\xbf{}", {}),
        (b"just words\n", "just words"),
        (b'"a string"', "a string"),
        (b'{"broken": ', '{"broken":'),
        (b'{"x": NaN}', '{"x": NaN}'),
        (b'{"x": Infinity}', '{"x": Infinity}'),
        (b'{"x": 1e999}', '{"x": 1e999}'),
        (b'{"x": "\\ud800"}', '{"x": "\\ud800"}'),
        (b'{"x": "\\u0000"}', '{"x": "\\u0000"}'),
        (b"[" * 100_000, "[" * 100_000),
        (b"9" * 5_000, "9" * 5_000),
        (b"nul\x00byte", "nulbyte"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_body_is_json_that_every_database_can_store_or_text_or_nothing(body: bytes, parsed: Any) -> None:
    assert parse_body(response(body)) == parsed


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("latin-1", "é".encode("latin-1")),
        ('"utf-16"', "é".encode("utf-16")),
        ("no-such-charset", "é".encode()),
        ("base64", "é".encode()),
    ],
)
def test_the_charset_of_the_answer_is_used_where_there_is_one(charset: str, body: bytes) -> None:
    assert parse_body(response(body, content_type=f"text/plain; Charset={charset}")) == "é"


@pytest.mark.parametrize("key", ["status", "_status"])
@pytest.mark.parametrize("state", ["error", "ERROR", " Error "])
def test_an_envelope_that_says_error_is_one_with_its_words(key: str, state: str) -> None:
    assert error_words({key: state, "response": "Could not\nfind it"}) == "Could not find it"
    assert error_words({key: state, "message": "no"}) == "no"
    assert error_words({key: state, "response": {"a": 1}, "message": "no"}) == "no"
    assert error_words({key: state}) == "no reason given"


@pytest.mark.parametrize(
    "body", [None, "error", ["error"], {}, {"status": "success"}, {"status": 500}, {"data": {"status": "error"}}, {"error": "x"}]
)
def test_anything_else_is_no_error_envelope(body: Any) -> None:
    assert error_words(body) is None


def test_the_services_words_are_one_line_and_no_markup() -> None:
    assert service_words({"response": "a  b\n" * 200}) == ("a b " * 200).strip()
    assert service_words("plain words") == "plain words"
    assert service_words("<html>page</html>") == ""
    assert service_words([1]) == ""
    assert service_words({"response": 5}) == ""
    assert service_words(None) == ""


@pytest.mark.parametrize(
    ("body", "headers", "page"),
    [
        (b"<!DOCTYPE html><p>Sign in", {}, True),
        (b"  <html lang='en'>", {}, True),
        (b"Sign in", {"content_type": "text/HTML; charset=utf-8"}, True),
        (b"Sign in", {"content_type": "application/xhtml+xml"}, True),
        (b"token123", {}, False),
        (b"<xml/>", {}, False),
        (b'{"a": 1}', {"content_type": "text/html"}, False),
        (b"", {"content_type": "text/html"}, False),
    ],
)
def test_a_web_page_is_known_but_json_with_a_wrong_type_is_not_taken_for_one(
    body: bytes, headers: dict[str, str], page: bool
) -> None:
    got = response(body, **headers)
    assert is_web_page(got, parse_body(got)) is page


@pytest.mark.parametrize(
    ("body", "token"),
    [
        ({"download_token": "t"}, "t"),
        ({"token": "t"}, "t"),
        ({"data": {"download_token": "t"}}, "t"),
        ({"data": {"token": "t"}, "response": "The link"}, "t"),
        ({"token": "worse", "download_token": "t"}, "t"),
        ({"token": "worse", "data": {"download_token": "t"}}, "t"),
        ({"data": {"token": "worse"}, "token": "t"}, "t"),
        ({"token": 12345}, "12345"),
        ({"data": {"download_url": "https://h/f?x=1&download_token=a%2Bb%20#frag"}}, None),
        ({"data": {"download_url": "https://h/f?x=1&download_token=a%2Bb%3D#frag"}}, "a+b="),
        ({"url": "https://h/f?download_token=a+b"}, "a+b"),
        ({"url": "https://h/f?token=t"}, "t"),
        ({"url": "https://h/f?token=a=b"}, "a=b"),
        ({"url": "https://h/f?token=a?b"}, "a?b"),
        ({"url": "https://h/f?token=worse&download_token=t"}, "t"),
        ({"token": "t", "url": "https://h/f?token=worse"}, "t"),
        ({"token": "", "url": "https://h/f?token=t"}, "t"),
        (b"bare-token\n", "bare-token"),
        (b"12345", "12345"),
        (b"two words", None),
        (b"two\nlines", None),
        (b"<html>", None),
        (b"", None),
        ({}, None),
        ([], None),
        ({"token": None}, None),
        ({"token": True}, None),
        ({"token": "two words"}, None),
        ({"token": "x" * 4097}, None),
        ({"token": "x" * 4096}, "x" * 4096),
        ({"url": 5}, None),
        ({"url": "https://h/f"}, None),
        ({"url": "https://h/f?token="}, None),
        ({"data": "token"}, None),
    ],
)
def test_the_token_is_found_in_every_place_where_services_put_it(body: Any, token: str | None) -> None:
    found = link(body)
    assert (found.token if found else None) == token


@pytest.mark.parametrize(
    ("path", "token"),
    [
        ("a.b", "t"),
        ("list.1.x", "u"),
        ("list.9.x", None),
        ("list.2.x", None),
        ("a.c", None),
        ("a.b.c", None),
        ("list.x", None),
        ("a", None),
    ],
)
def test_a_token_path_is_the_only_place_where_the_token_is_looked_for(path: str, token: str | None) -> None:
    found = link({"a": {"b": "t"}, "list": [{}, {"x": "u"}], "token": "not this"}, *path.split("."))
    assert (found.token if found else None) == token


def test_a_link_has_the_url_of_the_answer_where_there_is_one() -> None:
    assert link({"token": "t", "data": {"download_url": "https://h/f?token=t"}}).url_with_token == "https://h/f?token=t"
    assert link({"token": "t", "url": "https://h/u"}).url_with_token == "https://h/u"
    assert link({"token": "t", "url": ""}).url_with_token is None
    assert link({"token": "t"}).url_with_token is None


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({"expires_at": "2026-01-02 03:04:05"}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires_at": "2026-01-02T03:04:05+02:00"}, pendulum.datetime(2026, 1, 2, 1, 4, 5)),
        ({"expires": 1767323045}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": "1767323045"}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": 1767323045000}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": 100_000_000}, pendulum.datetime(1973, 3, 3, 9, 46, 40)),
        ({"expires": 100_000_000_000}, pendulum.datetime(1973, 3, 3, 9, 46, 40)),
        ({"expires_at": "20:00"}, pendulum.datetime(2026, 1, 1, 20)),
        ({"expires": 60}, GOT.add(seconds=60)),
        ({"expires_in": 60}, GOT.add(seconds=60)),
        ({"expires_in": "60.5"}, GOT.add(seconds=60.5)),
        ({"expires_in": 200_000_000}, GOT.add(seconds=200_000_000)),
        ({"expires_at": "rubbish", "expires_in": 60}, GOT.add(seconds=60)),
        ({"expires_at": "2026-01-02", "expires_in": 60}, pendulum.datetime(2026, 1, 2)),
        ({"expires_at": "now"}, None),
        ({"expires_at": "P1D"}, None),
        ({"expires_at": ""}, None),
        ({"expires_at": True}, None),
        ({"expires_at": []}, None),
        ({"expires_in": "tomorrow"}, None),
        ({"expires_in": "2026-01-02"}, None),
        ({"expires_in": 1e300}, None),
        ({"expires": 1e300}, None),
        ({"expires": 10**400}, None),
        ({"expires_at": "2026-13-45"}, None),
        ({}, None),
    ],
)
def test_the_end_of_a_token_is_read_where_it_is_told_and_can_be_read(fields: dict[str, Any], ends: Any) -> None:
    assert link({"token": "t", **fields}).expires_at == ends
    assert link({"token": "t", "data": fields}).expires_at == ends
    assert not ends or link({"token": "t", **fields}).expires_at.timezone_name == "UTC"


def test_results_are_dicts_with_times_in_iso_8601_utc() -> None:
    made = link({"token": "t", "expires_in": 60})
    assert made.to_dict() == {
        "file_id": "f1", "token": "t", "url_with_token": None,
        "created_at": "2026-01-01T00:00:01Z", "expires_at": "2026-01-01T00:01:01Z",
    }  # fmt: skip
    assert link(b"t").to_dict()["expires_at"] is None
    at = SENT.in_timezone("Europe/Berlin")
    assert FolderDeletion("d1", at, None).to_dict() == {
        "folder_id": "d1",
        "requested_at": "2026-01-01T00:00:00Z",
        "response": None,
    }
    assert RemoteUpload("u", at, "ok").to_dict() == {"url": "u", "requested_at": "2026-01-01T00:00:00Z", "response": "ok"}


def test_a_link_does_not_print_its_token_and_names_its_secrets() -> None:
    made = link({"token": "hunter2", "url": "https://h/f?token=hunter2&sig=hunter3sig"})
    assert "hunter" not in repr(made)
    assert {secret.reveal() for secret in made.secrets} == {"hunter2", "hunter3sig", "token=hunter2&sig=hunter3sig"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"a": "hunter2", "data": {"b": "hunter2"}}, "it has the keys a, data, data.b"),
        ({"two words hunter2": 1}, "it has the keys ?"),
        ({str(number): 1 for number in range(30)}, "it has the keys " + ", ".join(map(str, range(20)))),
        ({}, "it is an empty JSON object"),
        ([1], "its body is a JSON list"),
        ("hunter2", "its body is a text"),
        (None, "its body is empty"),
    ],
)
def test_an_answer_is_described_by_its_keys_and_never_by_its_values(body: Any, says: str) -> None:
    assert keys_of(body) == says
