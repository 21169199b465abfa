from __future__ import annotations

import json
from typing import Any

import pendulum
import pytest

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.content import read_content
from airflow_provider_cloudstore.protocol.failures import judge_failure, judge_response, retry_after
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL, Operation
from airflow_provider_cloudstore.protocol.values import Break, Failure, Response

NOW = pendulum.datetime(2026, 1, 1)
EVERY = [DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK]
REPEATABLE = [DELETE_FOLDER, CREATE_DOWNLOAD_LINK]


def response(status: int, body: Any = None, too_large: bool = False, **headers: str) -> Response:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, raw, NOW, NOW, too_large=too_large)


def judged(operation: Operation, got: Response, repeat: bool = False) -> type[errors.CloudStoreError] | None:
    verdict = judge_response(operation, got, read_content(got), repeat=repeat)
    return verdict[0] if verdict else None


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (response(429), errors.RateLimited),
        (response(503, retry_after="1"), errors.RateLimited),
        (response(300), errors.RedirectRefused),
        (response(304), errors.RedirectRefused),
        (response(399), errors.RedirectRefused),
        (response(400), errors.BadRequest),
        (response(401), errors.TokenRefused),
        (response(403), errors.PermissionDenied),
        (response(404), errors.NotFound),
        (response(410), errors.NotFound),
        (response(405), errors.MethodNotAllowed),
        (response(418), errors.RequestRefused),
        (response(499), errors.RequestRefused),
        (response(407), errors.ConfigurationError),
        (response(400, b"<p>The plain HTTP request was sent to HTTPS port"), errors.ConfigurationError),
        (response(400, b"Client sent an HTTP request to an HTTPS server.\n"), errors.ConfigurationError),
        (response(200, {"status": "error"}), errors.ServiceError),
        (response(299, {"_status": "Error"}), errors.ServiceError),
        (response(200), None),
        (response(204), None),
        (response(299, {"status": "success"}), None),
        (response(200, b"words"), None),
    ],
)
def test_an_answer_means_the_same_for_every_operation(operation: Operation, got: Response, kind: Any) -> None:
    assert judged(operation, got) is kind
    assert judged(operation, got, repeat=True) is kind


@pytest.mark.parametrize("status", [101, 500, 502, 503, 504, 599, 999])
def test_a_server_error_leaves_the_outcome_of_an_upload_unknown(status: int) -> None:
    assert judged(UPLOAD_FROM_URL, response(status)) is errors.OutcomeUnknown
    assert judged(UPLOAD_FROM_URL, response(status), repeat=True) is errors.RepeatableOutcomeUnknown
    for operation in REPEATABLE:
        assert judged(operation, response(status)) is errors.ServerFailure


@pytest.mark.parametrize(
    "got",
    [
        response(200, b"<!doctype html>"),
        response(200, too_large=True),
        response(200, b"{broken"),
        response(200, b'{"_status": "error"', content_type="application/json"),
        response(200, b"["),
        response(200, b"body", content_encoding="br"),
        response(200, b"no gzip", content_encoding="gzip"),
    ],
)
def test_a_success_that_cannot_be_the_services_answer_leaves_the_outcome_of_an_upload_unknown(got: Response) -> None:
    assert judged(UPLOAD_FROM_URL, got) is errors.OutcomeUnknown
    assert judged(UPLOAD_FROM_URL, got, repeat=True) is errors.RepeatableOutcomeUnknown
    for operation in REPEATABLE:
        assert judged(operation, got) is errors.UnusableAnswer


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation.name)
def test_what_was_never_sent_is_unreachable_for_every_operation(operation: Operation) -> None:
    verdict = judge_failure(operation, Failure(Break.NEVER_SENT, "why"), repeat=False)
    assert verdict == (errors.ServiceUnreachable, "why")


def test_what_was_sent_and_lost_is_unknown_for_an_upload_only() -> None:
    lost = Failure(Break.OUTCOME_UNKNOWN, "why")
    assert judge_failure(UPLOAD_FROM_URL, lost, repeat=False) == (errors.OutcomeUnknown, "why")
    assert judge_failure(UPLOAD_FROM_URL, lost, repeat=True) == (errors.RepeatableOutcomeUnknown, "why")
    for operation in REPEATABLE:
        assert judge_failure(operation, lost, repeat=False) == (errors.ServerFailure, "why")


def test_what_happened_is_said_in_a_clause() -> None:
    def what(got: Response, operation: Operation = DELETE_FOLDER) -> str:
        verdict = judge_response(operation, got, read_content(got), repeat=False)
        assert verdict is not None
        return verdict[1]

    assert what(response(429)) == "HTTP 429"
    assert what(response(500)) == "HTTP 500"
    assert what(response(404)) == "HTTP 404"
    assert what(response(302)) == "HTTP 302, a redirect"
    assert what(response(200, too_large=True)) == "HTTP 200 with a body of more than 1024 KiB, which was cut off"
    assert what(response(200, b"<html>")) == "HTTP 200 with a web page in place of the service's response"
    assert what(response(200, {"status": "error"})) == "HTTP 200, but the service reports an error"


@pytest.mark.parametrize(
    ("kind", "again", "permanent"),
    [
        (errors.ServiceUnreachable, True, False),
        (errors.RateLimited, True, False),
        (errors.ServerFailure, True, False),
        (errors.OutcomeUnknown, False, True),
        (errors.RepeatableOutcomeUnknown, True, False),
        (errors.ServiceError, False, False),
        (errors.UnusableAnswer, False, False),
        (errors.TokenRefused, False, True),
        (errors.PermissionDenied, False, True),
        (errors.NotFound, False, True),
        (errors.BadRequest, False, True),
        (errors.MethodNotAllowed, False, True),
        (errors.RedirectRefused, False, True),
        (errors.RequestRefused, False, True),
        (errors.ConfigurationError, False, True),
        (errors.InvalidInputError, False, True),
    ],
)
def test_each_error_says_whether_it_is_tried_again_here_and_by_airflow(kind: Any, again: bool, permanent: bool) -> None:
    error = kind("what")
    assert (error.again, error.permanent) == (again, permanent)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("120", 120), (" 7 ", 7), ("1.5", 1.5),
            ("999999999999", 1e9), ("99999999999999", 1e9), ("9" * 5000, 1e9),
            ("Fri, 31 Dec 9999 00:00:00 GMT", 1e9),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120), ("Thu, 01 Jan 2026 00:02:00 +0100", 0), ("Wed, 31 Dec 2025 23:59:00 GMT", 0),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120), ("Thu Jan  1 00:02:00 2026", 120),
        ("", None), ("soon", None), ("-5", None), ("1e5", None), ("nan", None), ("١٢", None),
        ("Thu, 99 Jan 2026 00:02:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_an_http_date(value: str, seconds: float | None) -> None:
    assert retry_after(response(429, retry_after=value)) == seconds


def test_without_retry_after_no_time_is_named() -> None:
    assert retry_after(response(429)) is None
