from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol import convention
from airflow_provider_cloudstore.protocol.paths import Paths, plain
from airflow_provider_cloudstore.protocol.services import Service
from tests.support import CALLS, ending

PATHS = [value for field in dataclasses.fields(Service) if isinstance(value := getattr(Service(), field.name), Paths)]


def test_the_convention_has_at_most_35_names() -> None:
    in_paths = {plain(key) for paths in PATHS for keys in paths.alternatives for key in keys}
    names = in_paths.union(convention.STATES, convention.FLAGS, convention.CODES, convention.ERRORS)
    assert len(names) + len(convention.PENDING) <= 35, sorted(names)


@pytest.mark.parametrize(
    "body",
    [
        *({name: value} for name in ("status", "_status", "state", "result") for value in ("error", "FAILED", " error-4", False)),
        {"_status": "error", "status": "ok"},
        *({name: value} for name in ("success", "ok") for value in (False, 0, 0.0, "false")),
        *({name: value} for name in ("code", "errno", "statusCode", "error_code") for value in (7, "-9", 1000, 7.0, 4.5)),
        *({name: value} for name in ("error", "errors") for value in ("no", True, {"message": "no"}, ["no"])),
    ],
    ids=str,
)  # fmt: skip
def test_what_says_that_it_failed_by_the_convention_is_an_error_of_every_call(body: Any) -> None:
    assert {ending(operation, body) for operation in CALLS} == {"ServiceError"}


@pytest.mark.parametrize(
    "body",
    [
        {"error": "No error"}, {"error": None}, {"error": ""}, {"errors": []}, {"error": {"code": 0, "message": ""}}, {"code": 0},
        {"code": 1}, {"code": 204}, {"code": "SUCCESS"}, {"errno": 0}, {"status": 0}, {"status": 1}, {"status": "created"},
        {"type": "exceptional"}, {"type": "error-report.pdf"}, {"data": {"status": "error"}}, {"x": 1}, {},
        {"link": "https://h/help"},
    ],
    ids=str,
)  # fmt: skip
def test_what_shows_no_sign_of_an_error_is_a_success_but_no_token(body: Any) -> None:
    assert ending("delete", body) == "True"
    assert ending("upload", {**body, "file_id": "f1"}) == "f1"
    assert ending("link", {**body, "token": "t-1"}) == "t-1"
    assert ending("link", body) == "InvalidResponseError"


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (410, "NotFoundError"),
        (429, "RateLimitError"),
        (500, "TransientServiceError"),
        *((other, "ServiceError") for other in (400, 405, 407, 408, 409, 422, 2005)),
    ],
)
def test_a_number_in_the_body_means_a_status_only_where_that_is_certain(number: int, error: str) -> None:
    assert ending("delete", {"code": number}) == ending("link", {"code": str(number)}) == error
    assert ending("delete", {"error": {"code": number}}) == "ServiceError"


@pytest.mark.parametrize(
    "words",
    ["Invalid access token", "invalid token", "Token expired", "access_token has expired", "Not logged in.", "Login required",
     "Unauthorized", "The apikey is invalid", "please reauthenticate or try again"],
)  # fmt: skip
def test_a_refused_token_is_known_by_a_few_phrases_unless_the_owner_declares_others(words: str) -> None:
    for status in (200, 400, 403):
        assert ending("delete", {"status": "error", "message": words}, status) == "AuthenticationError"
    assert ending("delete", {"status": "error", "message": words}, token_refused_pattern="E02") == "ServiceError"
    assert ending("delete", {"message": words}) == "True"


@pytest.mark.parametrize("words", ["Remote server: 401 Unauthorized", "https://h: invalid token", "the url needs a token"])
def test_what_a_source_answered_says_nothing_of_the_token(words: str) -> None:
    assert ending("upload", {"status": "error", "message": words}) == "ServiceError"


@pytest.mark.parametrize("state", ["pending", "Queued", "processing"])
def test_a_link_that_is_not_ready_is_waited_for(state: str) -> None:
    assert ending("link", {"status": state}) == "NotFoundError"
    assert ending("link", "", 202) == "NotFoundError"
    assert ending("link", {"status": state, "token": "t-1"}) == "t-1"


@pytest.mark.parametrize("words", ["Folder 7 is not in our database", "Remote server error 404"])
def test_words_about_a_database_or_a_remote_server_leave_nothing_in_doubt(words: str) -> None:
    for operation in CALLS:
        assert ending(operation, {"status": "error", "message": words}) == "ServiceError"


@pytest.mark.parametrize("value", ["ok", "success", True, 1])
def test_a_flag_is_an_error_only_if_it_is_false(value: Any) -> None:
    assert ending("upload", {"success": value, "file_id": "12"}) == "12"
    assert ending("delete", {"ok": value}) == "True"
