from __future__ import annotations

import json
from typing import Any

import pendulum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_provider_cloudstore.doctor import places
from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.results import find_file_id, find_link
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import examples

SECRET = Secret("c4n4ry/acc3ss+token")
MISSING = "airflow-connection-test"
NOW = pendulum.datetime(2026, 1, 1)
TOKEN_MESSAGES = [
    "Token not found",
    "The access token does not exist.",
    "Invalid access token",
    "Unknown API key",
    "Wrong token",
    "No such user",
    "The session does not exist",
]
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(SECRET.reveal())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(), st.sampled_from(["id", "file", "token", "url", "data", "status", SECRET.reveal()])),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)
messages = st.one_of(
    st.lists(
        st.sampled_from(
            ["not", "found", "No", "such", "file", "unknown", "the", "(404)", "does", "exist.", MISSING, "\\", "[a|b]", "12"]
        ),
        min_size=1,
        max_size=6,
    ).map(" ".join),
    st.text().map(lambda text: " ".join(text.split())),
)


def response(data: Any) -> Response:
    return Response(200, {}, json.dumps(data).encode(), NOW.timestamp(), NOW.timestamp())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"id": "f1"}, ["id"]),
        ({"data": {"id": "f1"}}, ["data.id"]),
        ({"result": {"fileId": 17}}, ["result.fileId"]),
        ({"files": [{"uuid": "a-b"}]}, ["files.0.uuid"]),
        ({"id": "q1", "file": {"id": "f1"}}, ["file.id", "id"]),
        ({"job_id": "j1", "data": {"id": "f1"}, "file_hash": "h1"}, ["file_hash", "data.id", "job_id"]),
        ({"id": "f1", "file": {"id": "f1"}}, ["file.id"]),
        ([{"id": "f1"}], ["0.id"]),
        ({"name": "report", "valid": "x", "video": "y", "identity": "z"}, []),
        ({"id": None, "data": {"id": "two words"}}, ["data.id"]),
        ({"id": ["f1"]}, []),
        ({"a.id": "f1"}, []),
        ("f1", []),
        (None, []),
    ],
)
def test_ids_are_found_in_responses_of_many_shapes_the_likeliest_first(data: Any, expected: list[str]) -> None:
    found = places.id_places(data, ())
    assert [one.path for one in found] == expected
    for one in found:
        assert find_file_id(data, tuple(one.path.split(".")), ()) == one.file_id, "the extra finds the same"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"link": {"key": "secret-key-1"}}, ["link.key"]),
        ({"result": {"downloadToken": "secret-key-1", "hash": "secret-key-2"}}, ["result.downloadToken", "result.hash"]),
        ({"location": "https://cdn.example.com/x?sig=1"}, ["location"]),
        ({"links": [{"href": "https://cdn.example.com/x"}]}, ["links.0.href"]),
        ({"link": {"key": "abc"}}, []),  # too short
        ({"hash": "the-file-id"}, []),
        ({"name": "secret-key-1"}, []),
        ("secret-key-1", []),
    ],
)
def test_tokens_are_found_in_responses_of_many_shapes_the_likeliest_first(data: Any, expected: list[str]) -> None:
    found = places.token_places(response(data), data, "the-file-id", ())
    assert [path for path, _ in found] == expected
    for path, link in found:
        again = find_link("the-file-id", response(data), data, tuple(path.split(".")), ())
        assert again is not None
        assert again.token == link.token, "the extra finds the same"


def test_nothing_that_repeats_a_secret_is_an_id_or_a_token() -> None:
    for value in (SECRET.reveal(), SECRET.reveal().encode().hex(), f"x-{SECRET.reveal()}-y"):
        data = {"id": value, "key": value, f"{value}_id": "f1", f"token {value}": "long-enough"}
        assert places.id_places(data, (SECRET,)) == []
        assert places.token_places(response(data), data, "f1", (SECRET,)) == []


def test_no_more_candidates_are_tried_than_a_person_can_compare() -> None:
    data = {f"part{chr(97 + number)}": {"id": f"f{number}", "key": f"long-key-{number}"} for number in range(20)}
    assert len(places.id_places(data, ())) == len(places.token_places(response(data), data, "f1", ())) == places.MAX_CANDIDATES


@given(json_values)
@settings(max_examples=examples(150), deadline=None)
def test_no_json_is_too_odd_to_look_through(data: Any) -> None:
    found = places.id_places(data, (SECRET,))
    links = places.token_places(response(data), data, "f1", (SECRET,))
    printed = "".join([*(f"{one.path} {one.file_id}" for one in found), *(f"{path} {link.token}" for path, link in links)])
    assert SECRET.reveal() not in printed
    assert len(found) <= places.MAX_CANDIDATES


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("No such file", "No such file"),
        ("Not found", "^Not found$"),
        ("Not found.", r"^Not found\.$"),
        (f"File {MISSING} does not exist (code 17).", r"File .* does not exist \(code .*\)\."),
        (f"{MISSING} not found", ""),
        (f"'{MISSING}' is no file", "'.*' is no file"),
        ("Invalid access token", ""),
        ("File not found or access denied", ""),
        ("Please log in", ""),
        ("Internal server error", ""),
        ("Database connection lost", ""),
        ("Rate limit exceeded", ""),
        ("no reason given", ""),
        ("No such user", ""),
        ("No such file. Ref a3f9bc12", "No such file\\. Ref"),
        ("File *** not found", ""),
        ("404", ""),
        ("", ""),
    ],
)
def test_a_pattern_is_proposed_only_for_what_can_mean_not_found(message: str, pattern: str) -> None:
    assert places.not_found_pattern(message, MISSING) == pattern


@given(messages)
@settings(max_examples=examples(300), deadline=None)
def test_a_proposed_pattern_is_a_valid_extra_that_matches_its_message_for_every_id_and_nothing_about_a_token(
    message: str,
) -> None:
    message += " could not be found"
    pattern = places.not_found_pattern(message, MISSING)
    assume(pattern)
    extra = {"not_found_pattern": pattern}
    compiled = Settings.from_connection(host="h", schema=None, port=None, password="x", extra=extra).not_found_pattern
    assert compiled is not None
    assert compiled.search(message)
    assert compiled.search(message.replace(MISSING, "f-17"))
    assert not [about_token for about_token in TOKEN_MESSAGES if compiled.search(about_token)]
