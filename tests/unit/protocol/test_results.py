from __future__ import annotations

import json
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol.content import read_content
from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.results import (
    FolderDeletion,
    RemoteUpload,
    find_link,
)
from airflow_provider_cloudstore.protocol.secrets import Secret

SENT = pendulum.datetime(2026, 1, 1)
GOT = pendulum.datetime(2026, 1, 1, 0, 0, 1)


def response(body: Any = b"", **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(
        200, {name.replace("_", "-"): value for name, value in headers.items()}, raw, SENT.timestamp(), GOT.timestamp()
    )


def link(body: Any, *token_path: str, secrets: tuple[Secret, ...] = ()) -> Any:
    got = response(body)
    return find_link("f1", got, read_content(got).data, token_path, secrets)


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
        ({"url": "https://h/f?token=t"}, "t"),
        ({"url": "https://h/f?token=a=b"}, "a=b"),
        ({"url": "https://h/f?token=worse&download_token=t"}, "t"),
        ({"token": "t", "url": "https://h/f?token=worse"}, "t"),
        ({"token": "", "url": "https://h/f?token=t"}, "t"),
        (b"bare-token\n", "bare-token"),
        (b"two words", None),
        (b'{"broken', None),
        ({"token": "a\ud800b"}, None),
        (b"two\nlines", None),
        (b"<html>", None),
        ({}, None),
        ({"token": None}, None),
        ({"token": True}, None),
        ({"token": "two words"}, None),
        ({"token": "x" * 4097}, None),
        ({"token": "x" * 4096}, "x" * 4096),
        ({"url": 5}, None),
        ({"url": "https://h/f"}, None),
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
        ({"expires": 1767323045000}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": 100_000_000}, pendulum.datetime(1973, 3, 3, 9, 46, 40)),
        ({"expires": 100_000_000_000}, pendulum.datetime(1973, 3, 3, 9, 46, 40)),
        ({"expires": 60}, GOT.add(seconds=60)),
        ({"expires_in": "60.5"}, GOT.add(seconds=60.5)),
        ({"expires_in": 200_000_000}, GOT.add(seconds=200_000_000)),
        ({"expires_at": "rubbish", "expires_in": 60}, GOT.add(seconds=60)),
        ({"expires_at": "2026-01-02", "expires_in": 60}, pendulum.datetime(2026, 1, 2)),
        ({"expires_at": "now"}, None),
        ({"expires_at": "P1D"}, None),
        ({"expires_at": ""}, None),
        ({"expires_at": True}, None),
        ({"expires_in": "tomorrow"}, None),
        ({"expires_in": 1e300}, None),
        ({"expires": 10**400}, None),
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
    assert FolderDeletion("d1", at, None, False).to_dict() == {
        "folder_id": "d1",
        "requested_at": "2026-01-01T00:00:00Z",
        "response": None,
        "existed": False,
    }
    upload = RemoteUpload("f1", "u", at, "ok").to_dict()
    assert upload == {"file_id": "f1", "url": "u", "requested_at": "2026-01-01T00:00:00Z", "response": "ok"}
    assert next(iter(upload)) == "file_id"


def test_a_link_does_not_print_its_token_and_names_its_secrets() -> None:
    made = link({"token": "hunter2", "url": "https://h/f?token=hunter2&sig=hunter3sig"})
    assert "hunter" not in repr(made)
    assert {secret.reveal() for secret in made.secrets} == {"hunter2", "hunter3sig", "token=hunter2&sig=hunter3sig"}


TOKEN = Secret("s3cret/access+token")


@pytest.mark.parametrize(
    "echo",
    [
        "s3cret/access+token",
        "prefix.s3cret/access+token",
        "s3cret%2Faccess%2Btoken",
    ],
)
@pytest.mark.parametrize("place", ["token", "url", "bare", "path"])
def test_an_access_token_that_comes_back_is_no_download_token(echo: str, place: str) -> None:
    body: Any = {
        "token": {"token": echo},
        "path": {"a": echo},
        "url": {"url": f"https://h/f?token={echo}"},
        "bare": echo.encode(),
    }
    assert link(body[place], *(["a"] if place == "path" else []), secrets=(TOKEN,)) is None


def test_another_place_is_looked_at_where_the_first_repeats_the_access_token() -> None:
    made = link({"token": TOKEN.reveal(), "data": {"token": "real"}}, secrets=(TOKEN,))
    assert made.token == "real"


def test_a_short_access_token_is_not_seen_in_a_longer_download_token() -> None:
    assert link({"token": "abcdef"}, secrets=(Secret("abc"),)).token == "abcdef"
    assert link({"token": "abc"}, secrets=(Secret("abc"),)) is None


@pytest.mark.parametrize(
    "url",
    ["/relative?token=t", "//h/f", "h/f", "ftp://h/f", "javascript:alert(1)", "https://", "https://[bad", "https://h/a b", "https://h/a\nb",
     "https://h/\x7f", "https://h\\@evil/", "https://h/\ud800", "https://h/?access_token=s3cret%2Faccess%2Btoken",
     "https://h/" + "x" * 9000,
    ],
)  # fmt: skip
def test_a_url_that_must_not_be_handed_on_is_left_out_and_the_log_says_so(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert link({"token": "t", "url": url}, secrets=(TOKEN,)).url_with_token is None
    assert "Ignored the download URL of file 'f1'" in caplog.text
    assert "s3cret" not in caplog.text
