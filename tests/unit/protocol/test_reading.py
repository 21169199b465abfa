"""What is in a body, and what responses mean: the declaration, the status, the convention."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import MAX_BODY_BYTES
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, UploadFromUrl
from airflow_provider_cloudstore.protocol.reading import Reading, read
from tests.support import CALLS, TOKEN, connected, ending, response, result_of, settings


def body_of(raw: Any = b"", **headers: str) -> Reading:
    return read(response(200, raw, **headers), settings())


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


TOO_LARGE = "a body of more than 1 MiB, which was cut off"
BROKEN_JSON = "a body that begins like JSON and is not JSON"
TOO_DEEP = "a body that is nested too deeply"
XML = "XML in place of the service's response"
WEB_PAGE = "a web page in place of the service's response"


@pytest.mark.parametrize(
    ("raw", "headers", "problem"),
    [
        (b" " * (MAX_BODY_BYTES + 1), {}, TOO_LARGE),
        *[(raw, {}, BROKEN_JSON) for raw in (b"{broken", b'{"a": ', b"[", b"[" * 100_000, b'{"a": 1} extra')],
        (b'{"error":' + b"[" * 32 + b"]" * 32 + b"}", {}, TOO_DEEP),
        (b"[" * 32 + b"]" * 32, {}, ""),
        (b"<!DOCTYPE html><p>Sign in", {}, WEB_PAGE),
        (b"\xef\xbb\xbf<html>", {}, WEB_PAGE),
        (b"Sign in", {"content_type": "text/HTML; charset=utf-8"}, WEB_PAGE),
        (b"{{ title }} Sign in", {"content_type": "text/html"}, WEB_PAGE),
        (b"token123", {}, ""),
        (b'{"a": 1}', {"content_type": "text/html"}, ""),
        (b"", {"content_type": "text/html"}, ""),
        (b'<?xml version="1.0"?><a/>', {}, XML),
    ],
)
def test_what_cannot_be_the_services_own_is_known(raw: bytes, headers: dict[str, str], problem: str) -> None:
    got = body_of(raw, **headers)
    assert got.problem == problem


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"a": "hunter2", "data": {"b": "hunter2"}}, "it has the keys a, data, data.b"),
        ({"two words hunter2": 1}, "it has the keys ?"),
        ({str(number): 1 for number in range(30)}, "it has the keys " + ", ".join(map(str, range(20)))),
        ({}, "it is an empty JSON object"),
        ("hunter2", "its body is not a JSON object"),
        (None, "its body is empty"),
    ],
)
def test_a_body_is_described_by_its_keys_and_never_by_its_values(data: Any, says: str) -> None:
    assert body_of(data).key_names == says


UNKNOWN = "OutcomeUnknownError"


@pytest.mark.parametrize("body", ["", "OK", '"OK"', "Error: no such folder", "true"])
def test_nothing_and_plain_text_are_a_success_of_a_deletion_and_an_upload(body: str) -> None:
    assert ending("delete", body) == "True"
    assert ending("upload", body) == ""
    assert ending("delete", "false") == "ServiceError"


@pytest.mark.parametrize(("body", "token"), [("t0ken-12", "t0ken-12"), ("short", None), ("m", None), ("two words here", None)])
def test_plain_text_is_a_token_from_eight_characters_on(body: str, token: str | None) -> None:
    assert ending("link", body) == (token or "InvalidResponseError")
    assert ending("link", body, 202) == (token or "NotFoundError")
    assert (
        ending("link", "Unauthorized")
        == ending("link", "token_expired")
        == ending("link", '"invalid_token"')
        == "AuthenticationError"
    )
    assert ending("link", "no_such_file", not_found_pattern="no_such") == "NotFoundError"


@pytest.mark.parametrize("status", [200, 400, 404, 409, 429, 612])
def test_the_owners_patterns_win_over_statuses_and_numbers(status: int) -> None:
    body = {"code": 503, "why": {"deep": "E02: session is over"}}
    assert ending("delete", body, status, token_refused_pattern="E02") == "AuthenticationError"
    assert ending("link", body, status, not_found_pattern="session is over") == "NotFoundError"
    both: dict[str, Any] = {"token_refused_pattern": "E02", "not_found_pattern": "over"}
    assert ending("link", body, status, **both) == "AuthenticationError"
    assert (
        ending("delete", body, status, ignore_missing=True, not_found_pattern="^e02: .* over$", message_path="why.deep")
        == "False"
    )


def test_the_owners_patterns_see_the_body_as_it_came_but_the_built_in_words_only_what_the_service_says() -> None:
    assert ending("upload", "unauthorized.pdf was queued") == ""
    assert ending("delete", {"message": "failed", "error": "Invalid access token"}, 404) == "AuthenticationError"
    assert ending("delete", b'{"rc":"E17"}', 409, not_found_pattern='"rc":"E17"') == "NotFoundError"
    assert ending("delete", {"message": "no such folder", "log": ["user not logged in"]}, 404) == "NotFoundError"


@pytest.mark.parametrize("numbers", [(404, 403), (410, 429), (404, 500), (507, 500), (404, 507)])
def test_of_several_numbers_none_hides_a_doubt_and_none_makes_a_deletion_green(numbers: tuple[int, int]) -> None:
    for code, status in (numbers, numbers[::-1]):
        body = {"code": code, "status": status}
        assert ending("delete", body, ignore_missing=True) != "False"
        assert (ending("upload", body) == UNKNOWN) is (500 in numbers)


def test_a_404_that_is_nested_too_deeply_says_nothing_of_a_folder() -> None:
    body = b'{"message": "no such folder", "a": ' + b"[" * 500 + b"]" * 500 + b"}"
    assert ending("delete", body, 404, ignore_missing=True) == "RequestRejectedError"


def test_the_owners_patterns_are_not_asked_of_an_open_outcome_a_page_or_a_success() -> None:
    gone = {"message": "no such folder"}
    for status in (500, 503):  # the call may have been carried out
        assert ending("delete", gone, status, ignore_missing=True, not_found_pattern="no such") == "TransientServiceError"
    assert (
        ending("delete", "<html>no such folder", 404, ignore_missing=True, not_found_pattern="no such") == "RequestRejectedError"
    )
    assert ending("delete", gone, not_found_pattern="no such") == "True"
    assert ending("upload", {**gone, "ok": False}, not_found_pattern="no such") == "ServiceError"  # it has no subject


@pytest.mark.parametrize(
    ("body", "extra", "expected"),
    [
        ({"message": "No such folder"}, {}, "False"),
        ({}, {}, "False"),
        ({"message": "No such folder"}, {"not_found_pattern": "no such"}, "False"),
        ("No such folder", {"not_found_pattern": "no such"}, "NotFoundError"),
        ({"message": "no Route matched"}, {"not_found_pattern": "no such"}, "RequestRejectedError"),
        *((body, {}, "RequestRejectedError") for body in ("", "404 page not found", '["x"]', "<html>", '{"status":')),
    ],
    ids=str,
)
def test_a_404_makes_a_deletion_green_only_as_the_services_own_word(body: Any, extra: dict[str, Any], expected: str) -> None:
    assert ending("delete", body, 404, ignore_missing=True, **extra) == expected


@pytest.mark.parametrize("sign", [{"ok": False}, {"code": 409}, {"code": 429}, {"code": 401}])
def test_an_error_beside_a_files_id_leaves_an_upload_in_doubt(sign: dict[str, Any]) -> None:
    assert ending("upload", {"file_id": "f1", **sign}) == UNKNOWN
    assert ending("upload", {"file_id": "f1", **sign}, token_refused_pattern="f1") == UNKNOWN
    assert ending("upload", {"file_id": "f1", "error": "renamed"}) == "f1"  # a warning


def test_a_missed_success_when_is_an_error_and_unknown_only_beside_an_id_or_an_internal_failure() -> None:
    missed = {"state": "meh", "message": "quota"}
    assert {ending(operation, missed, success_when="state=fine") for operation in CALLS} == {"ServiceError"}
    assert ending("link", {"state": "pending"}, success_when="state=fine") == "NotFoundError"  # not yet
    assert ending("upload", {**missed, "file_id": "f1"}, success_when="state=fine") == UNKNOWN
    assert ending("upload", {"message": "internal error"}, success_when="state=fine") == UNKNOWN
    for message in ("Internal server error", "internal_server_error", "internalError", "Internal: an error"):
        assert ending("upload", {"code": 429, "message": message}) == UNKNOWN
    assert ending("upload", {"code": 429, "status": 500}) == UNKNOWN
    assert ending("upload", {"ok": False, "message": "Upload failed", "code": "INTERNAL_ERROR"}) == UNKNOWN


def test_success_when_decides_alone_and_for_each_call_or_for_one() -> None:
    assert ending("delete", {"code": 1000, "status": "error"}, success_when="code=1000") == "True"
    of_one = {"delete": "done", "upload": "done"}
    assert ending("delete", {"x": 1}, success_when=of_one) == "ServiceError"
    assert ending("link", {"token": "t-1"}, success_when=of_one) == "t-1"
    assert ending("delete", [{"done": True}], success_when="0.done=true") == "True"
    assert ending("delete", [{"done": False}], success_when="0.done=true") == "ServiceError"
    assert {ending("delete", body, success_when="done") for body in ("null", "true", "5", "[]")} == {"ServiceError"}
    assert {ending("delete", body, success_when="done") for body in ("", " ", "OK")} == {"True"}


def test_an_upload_needs_an_id_only_where_the_connection_says_where_it_is() -> None:
    assert ending("upload", {"id": "q1"}) == ""
    assert ending("upload", {"id": "q1"}, file_id_path="id") == "q1"
    assert ending("upload", {"file_id": "f1"}, file_id_path="id") == UNKNOWN


@pytest.mark.parametrize(
    ("body", "extra", "words"),
    [
        ({"response": "Could not\nfind it", "error": "x"}, {}, "Could not find it"),
        ({"ok": False, "error": {"code": 408}}, {}, "408"),
        ({"status": "error-notFound"}, {}, "error-notFound"),
        ({"why": "session is over", "ok": False}, {"message_path": "why"}, "session is over"),
        ({"why": "hunter2", "ok": False}, {}, "it has the keys why, ok"),
    ],
)
def test_the_words_are_shown_or_else_the_names_of_the_keys(body: Any, extra: dict[str, Any], words: str) -> None:
    own = connected(extra)
    kind, *arguments = CALLS["delete"]
    for status in (200, 401, 409, 500):
        error = Attempt(kind(own, *arguments), own).interpret(response(status, body))
        assert not isinstance(error, CloudStoreError) or f": {words}." in str(error)


@pytest.mark.parametrize(
    ("body", "shows"), [({"code": "hunter2"}, False), ("hunter2 hunter2", True), ({"message": "not hunter2"}, True)]
)
def test_a_word_that_may_be_a_token_which_nobody_has_declared_is_not_shown(body: Any, shows: bool) -> None:
    own = connected({})
    kind, *arguments = CALLS["link"]
    error: Any = Attempt(kind(own, *arguments), own).interpret(response(200, body if isinstance(body, dict) else body.encode()))
    assert ("hunter2" in str(error)) is shows


def test_the_error_of_an_unknown_upload_says_why_and_what_to_check() -> None:
    beside = {"status": "error", "file_id": "f1"}
    for body, says in ((beside, "HTTP 200, and .* an error beside the file's id"), (b"<html>", "no proxy or login page")):
        with pytest.raises(exceptions.OutcomeUnknownError, match=says):
            result_of(UploadFromUrl(settings(), "https://h/f"), response(200, body))


def test_an_upload_that_may_have_arrived_is_unknown_whatever_its_answer_says_of_the_token() -> None:
    for body in ({"status": 500, "message": "invalid token"}, {"error": "Internal error: session expired while saving"}):
        with pytest.raises(exceptions.OutcomeUnknownError):
            result_of(UploadFromUrl(settings(), "https://h/f"), response(200, body))
        with pytest.raises(exceptions.AuthenticationError):
            result_of(CreateDownloadLink(settings(), "f1"), response(200, body))


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (f"https://u:hunter2@new.example.com:8443/{TOKEN}?hunter2", "to https://new.example.com:8443 (at "),
        ("/login/hunter2", "to https://files.example.com (at "),
        ("https://u:hunter#2@new.example.com/x", "(at "),
        ("//u:hunter2%40new.example.com/x", "(at "),
        ("https://u\uff20new.example.com/hunter2", "(at "),
    ],
)
def test_a_redirect_is_shown_with_its_host_alone(location: str, shown: str) -> None:
    with pytest.raises(exceptions.BadRequestError) as refused:
        result_of(CreateDownloadLink(settings(), "f1"), response(301, location=location))
    assert f"HTTP 301, a redirect {shown}" in str(refused.value)
