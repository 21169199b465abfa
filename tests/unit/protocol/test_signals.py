"""What responses of the field mean, beyond the rows of ``responses.jsonl`` and the table of the docs."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from airflow_provider_cloudstore.exceptions import CloudStoreError
from tests.support import CALLS, connected, response


def ending(operation: str, body: Any, status: int = 200, *, ignore_missing: bool = False, **extra: Any) -> str:
    """The name of the error, or what a success returns."""
    own = connected(extra, password="access-1")
    kind, *arguments = CALLS[operation]
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    ended: Any = kind(own, *arguments, ignore_missing=ignore_missing).interpret(response(status, raw), own)
    if isinstance(ended, CloudStoreError):
        return type(ended).__name__
    return str(getattr(ended, {"delete": "existed", "upload": "file_id", "link": "token"}[operation]))


ERRORS: list[Any] = [
    *({name: True} for name in ("hasError", "has_errors", "isError", "failed")),
    *({name: -3} for name in ("responseCode", "http_status", "error_no", "error-code", "resultCode", "return_code", "ret", "rc")),
    *({name: "locked"} for name in ("errorMessage", "error_msg", "err", "errmsg", "exception", "ExceptionMessage", "fault")),
    *({"status": state} for state in ("err", "nack", "denied", "rejected", "not_found", "aborted", "internal_error")),
    *({"success": value} for value in ("no", "N", -1, "failed", "error")),
    {"error": "true"}, {"errors": "true"}, {"succeeded": False}, {"error": {"code": 7, "message": ""}},
    '\nWarning: Undefined array key "x" in /a.php on line 3\n{"status": "error"}', 'PHP Notice: x\n{"success": false}',
    ")]}',\n{\"status\": \"error\"}", 'callback({"status": "error"});', json.dumps(json.dumps({"status": "error"})),
    json.dumps({"status": "error"}).encode("utf-16"), "Error: no such folder", "FAILED",
    "PHP Fatal error:  Uncaught Exception in /x", "Traceback (most recent call last):",
]  # fmt: skip


@pytest.mark.parametrize("body", ERRORS, ids=str)
def test_what_says_that_it_failed_is_no_success(body: Any) -> None:
    assert {ending(operation, body) for operation in CALLS} <= {"ServiceError", "OutcomeUnknownError"}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "ok", "message": "", "log_id": "2022abc"}}, {"error": "No error"}, {"error_code": "NONE"},
        {"error": {"status": 200, "message": "OK"}}, {"errcode": 0, "errmsg": "ok"}, {"type": "error-report.pdf"}, {"ret": 0},
        {"type": "file"}, {"status": "created"}, {"status": 0}, {"status": 1}, {"result": 0}, {"code": "SUCCESS"},
        {"stat": "ok"}, {"isSuccess": True, "errorCode": 0}, {"code": "00000"}, {"code": None}, {"code": ""}, {"errno": 0},
        {"success": True, "code": 31001}, {"result": True, "code": 999}, {"code": 200}, {"data": {"code": "Z19"}, "x": 1},
        {"ocs": {"meta": {"status": "ok", "statuscode": 100}, "data": []}},
        {"_status": "success", "error": "false"}, {"error": {"code": 0, "message": ""}}, {"error": None, "detail": "ok"},
        {"errors": [], "x": 1}, {"error": {"code": 200, "message": "OK"}, "x": 1},
    ],
)  # fmt: skip
def test_what_says_that_nothing_failed_is_a_success(body: Any) -> None:
    assert ending("delete", body) == "True"
    assert ending("upload", {**body, "file_id": "f1"}) == "f1"
    assert ending("link", {**body, "token": "t-1"}) == "t-1"


@pytest.mark.parametrize("body", ["true", '"true"', '"OK"'])
def test_a_bare_word_of_success_is_one(body: str) -> None:
    assert ending("delete", body) == "True"


@pytest.mark.parametrize("body", [gzip.compress(b'{"status": "error"}'), b"\x00\x01\x02 binary"], ids=["gzip", "binary"])
def test_what_is_neither_json_nor_text_is_not_the_services(body: bytes) -> None:
    expected = {"delete": "InvalidResponseError", "upload": "OutcomeUnknownError", "link": "InvalidResponseError"}
    assert {operation: ending(operation, body) for operation in expected} == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": "file not found", "url": "https://h/help"}, "ServiceError"),
        ({"error": {"message": "gone"}, "data": {"url": "https://h/docs"}}, "ServiceError"),
        ({"message": "Invalid access token", "url": "https://h/login"}, "AuthenticationError"),
        ({"status": "ok", "url": "https://h/d?token="}, "InvalidResponseError"),
        *(({"status": state, "url": "https://h/f"}, "NotFoundError") for state in ("downloading", "In progress", "Pending.")),
        ({"status": "processing", "url": "https://h/f"}, "NotFoundError"),
        ({"ready": False, "url": "https://h/f"}, "NotFoundError"),
        ({"error": "quota is low", "token": "t-1"}, "t-1"),
    ],
)
def test_a_url_is_a_link_only_where_nothing_says_otherwise(body: Any, expected: str) -> None:
    assert ending("link", body) == expected


@pytest.mark.parametrize("word", ["expired", "invalid_token", "ACCESS_DENIED", "OK", "no", "login", "500", "***"])
def test_a_word_is_no_token(word: str) -> None:
    assert ending("link", word) == ending("link", {"token": word}) == "InvalidResponseError"


@pytest.mark.parametrize("status", [200, 202])
def test_a_word_that_means_not_yet_is_waited_for(status: int) -> None:
    assert ending("link", "queued", status) == "NotFoundError"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"status":', "NotFoundError"),
        ("x" * 1_200_000, "NotFoundError"),
        ({"code": 500, "message": "db down"}, "TransientServiceError"),
        ({"code": 401}, "AuthenticationError"),
        ({"status": 403}, "PermissionDeniedError"),
        ({"code": 404}, "False"),
        ("", "False"),
    ],
)
def test_a_404_that_is_broken_or_states_another_error_is_no_missing_folder(body: Any, expected: str) -> None:
    assert ending("delete", body, 404, ignore_missing=True) == expected


def test_of_several_stated_statuses_not_found_counts_last() -> None:
    assert ending("delete", {"status": 404, "code": 401}, ignore_missing=True) == "AuthenticationError"


@pytest.mark.parametrize(
    ("status", "sign"),
    [(200, {"ok": False}), (200, {"code": 409}), (200, {"code": 429}), (400, {}), (401, {}), (404, {}), (500, {})],
)
def test_a_files_id_leaves_an_upload_in_doubt_whatever_stands_beside_it(status: int, sign: dict[str, Any]) -> None:
    assert ending("upload", {"file_id": "f1", **sign}, status) == "OutcomeUnknownError"


def test_success_when_reads_the_only_item_of_a_list() -> None:
    assert ending("delete", [{"status": "meh"}], success_when="status=ok") == "ServiceError"
    assert ending("delete", [{"status": "ok"}], success_when="status=ok") == "True"
