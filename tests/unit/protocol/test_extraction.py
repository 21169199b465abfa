from __future__ import annotations

from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol.extraction import find_link, link_secrets
from airflow_provider_cloudstore.protocol.reading import read
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.results import FolderDeletion
from tests.support import RECEIVED, connected, response

TOKEN = Secret("s3cret/access+token")


def link(body: Any, token_path: str = "", secrets: tuple[Secret, ...] = ()) -> Any:
    own = connected({"token_path": token_path} if token_path else {}, "https://files.example.com/p")
    return find_link("f1", read(response(200, body), own, secrets))


@pytest.mark.parametrize(
    ("body", "token"),
    [
        ({"download_token": "t"}, "t"),
        ({"token": "worse", "download_token": "t"}, "t"),
        ({"token": "t", "data": {"download_token": "worse"}}, "t"),
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
        ({"data": {"href": "https://h/d/abc"}}, None),
        ({"url": "https://h/d/abc"}, None),
        ({"downloadUrl": "/d/My File?download_token=t"}, "t"),
        ({"url": "https://h/d/abc", "token": "t"}, "t"),
    ],
)
def test_the_token_is_found_where_the_convention_has_it_or_in_the_query_of_the_url(body: Any, token: str | None) -> None:
    found = link(body)
    assert (found.token if found else None) == token


@pytest.mark.parametrize(
    ("path", "token"),
    [("a.b", "t"), ("list.1.x", "u"), ("list.2.x", None), ("a.c", None), ("a.b.c", None), ("list.x", None), ("a", None)],
)
def test_a_token_path_is_the_only_place_where_the_token_is_looked_for(path: str, token: str | None) -> None:
    found = link({"a": {"b": "t"}, "list": [{}, {"x": "u"}], "token": "not this"}, path)
    assert (found.token if found else None) == token


def test_a_token_that_is_a_url_is_the_url_of_the_link() -> None:
    found = link({"link": {"href": "https://h/x/f1"}, "url": "https://h/page"}, "link.href")
    assert found.token == found.url_with_token == "https://h/x/f1"


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({"expires_at": "2026-01-02 03:04:05"}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires_at": "2026-01-02T03:04:05+02:00"}, pendulum.datetime(2026, 1, 2, 1, 4, 5)),
        ({"expires": 1767323045}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires": 60}, RECEIVED.add(seconds=60)),
        ({"expires_in": "60.5"}, RECEIVED.add(seconds=60.5)),
        ({"expires_at": "rubbish", "expires_in": 60}, RECEIVED.add(seconds=60)),
        ({"expires": 1767323045000}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expiresAt": "2026-01-02T03:04:05Z"}, pendulum.datetime(2026, 1, 2, 3, 4, 5)),
        ({"expires_at": True}, None),
        *(({"expires_in": none}, None) for none in ("soon", 0, -1)),
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
    ["word", "ftp://h/f", "https://", "https://h\\@evil/", "https://h/?access_token=s3cret%2Faccess%2Btoken"],
)  # fmt: skip
def test_a_url_that_must_not_be_handed_on_is_left_out(url: str) -> None:
    assert link({"token": "t", "url": url}, secrets=(TOKEN,)).url_with_token is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://dl.example.com/My Report.pdf?download_token=a b",
            "https://dl.example.com/My%20Report.pdf?download_token=a%20b",
        ),
        ("/dl/abc?download_token=t", "https://files.example.com/dl/abc?download_token=t"),
        (" dl/abc?download_token=t", "https://files.example.com/dl/abc?download_token=t"),
        ("//cdn.example.com/x?token=t", "https://cdn.example.com/x?token=t"),
        ("https://h/%20?token=%2B", "https://h/%20?token=%2B"),
        ("https://h/ä?token=t", "https://h/%C3%A4?token=t"),
    ],
)
def test_a_url_of_the_service_is_encoded_and_resolved_against_the_base_url(url: str, shown: str) -> None:
    for found in (link({"token": "t", "url": url}), link({"url": url})):
        assert found.url_with_token == shown


def test_results_are_dicts_with_times_in_iso_8601_utc() -> None:
    made = link({"token": "t", "expires_in": 60})
    assert made.to_dict() == {
        "file_id": "f1", "token": "t", "url_with_token": None,
        "created_at": "2026-01-01T00:00:01Z", "expires_at": "2026-01-01T00:01:01Z",
    }  # fmt: skip
    assert link(b"t0ken-12").to_dict()["expires_at"] is None
    deletion = FolderDeletion("d1", RECEIVED.in_timezone("Europe/Berlin"), None, existed=False)
    assert deletion.to_dict()["requested_at"] == "2026-01-01T00:00:01Z"


def test_a_link_does_not_print_its_token_and_names_its_secrets() -> None:
    made = link({"token": "hunter2", "url": "https://h/f?token=hunter2&sig=hunter3sig"})
    assert "hunter" not in repr(made)
    assert {secret.reveal() for secret in link_secrets(made)} == {"hunter2", "hunter3sig", "token=hunter2&sig=hunter3sig"}
