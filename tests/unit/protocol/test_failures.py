from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.failures import (
    CallContext,
    Failure,
    Success,
    classify_failure,
    classify_response,
    is_about_service,
    retry_after,
)
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import (
    CREATE_DOWNLOAD_LINK,
    DELETE_FOLDER,
    OPERATIONS,
    UPLOAD_FROM_URL,
    Operation,
)
from airflow_provider_cloudstore.protocol.results import read_content
from tests.support import response


def judged(operation: Operation, got: Response, has_result: bool = False) -> type[exceptions.CloudStoreError] | None:
    verdict = classify_response(CallContext(operation), got, read_content(got), has_result=has_result)
    return verdict.error if isinstance(verdict, Failure) else None


@pytest.mark.parametrize("kind", FailureKind)
def test_only_an_unknown_outcome_may_have_been_sent(kind: FailureKind) -> None:
    for operation in OPERATIONS:
        first = classify_failure(CallContext(operation), TransportFailure(kind, "why"), "https://h")
        later = classify_failure(CallContext(operation, may_have_succeeded=True), TransportFailure(kind, "why"), "https://h")
        is_unknown = kind is FailureKind.OUTCOME_UNKNOWN
        assert first.error.sent is is_unknown
        assert first.advice.startswith("Nothing was sent. ") is not is_unknown
        if kind is not FailureKind.PROXY_REFUSED or not operation.idempotent:
            assert (later.error.sent, later.advice) == (True, "")


@pytest.mark.parametrize(
    ("operation", "known", "got", "verdict"),
    [
        (DELETE_FOLDER, {}, response(204), Success(existed=True)),
        (DELETE_FOLDER, {}, response(404), exceptions.NotFoundError),
        (DELETE_FOLDER, {"ignore_missing": True}, response(404), Success(existed=False)),
        (DELETE_FOLDER, {"may_have_succeeded": True}, response(410), Success(existed=None)),
        (DELETE_FOLDER, {"may_have_succeeded": True}, response(404, b"<html>"), exceptions.NotFoundError),
        (DELETE_FOLDER, {"may_have_succeeded": True}, response(200), Success(existed=True)),
        (DELETE_FOLDER, {"may_have_succeeded": True}, response(429), exceptions.RateLimitError),
        (CREATE_DOWNLOAD_LINK, {"may_have_succeeded": True}, response(404), exceptions.NotFoundError),
        (UPLOAD_FROM_URL, {"may_have_succeeded": True}, response(429), exceptions.TransientServiceError),
        (UPLOAD_FROM_URL, {"may_have_succeeded": True}, response(403), exceptions.OutcomeUnknownError),
        (UPLOAD_FROM_URL, {"may_have_succeeded": True}, response(401), exceptions.AuthenticationError),
    ],
)
def test_what_earlier_attempts_left_open_decides_too(operation: Operation, known: Any, got: Response, verdict: Any) -> None:
    found = classify_response(CallContext(operation, **known), got, read_content(got))
    assert (found.error if isinstance(found, Failure) else found) == verdict


PATTERN = re.compile("no such file", re.IGNORECASE)
PAGE = b"<html>no such file</html>"


@pytest.mark.parametrize(
    ("got", "pattern", "kind", "inconclusive"),
    [
        (response(404), None, exceptions.NotFoundError, False),
        (response(404, PAGE), PATTERN, exceptions.NotFoundError, True),
        (response(400, {"message": "bad"}), None, exceptions.BadRequestError, False),
        (response(400, {"message": "No such file"}), PATTERN, exceptions.NotFoundError, False),
        (response(400, PAGE), PATTERN, exceptions.BadRequestError, True),
        (response(401, {"error": "no such file"}), PATTERN, exceptions.AuthenticationError, False),
        (response(302), None, exceptions.BadRequestError, True),
        (response(409), None, exceptions.RequestRejectedError, True),
        (response(403), None, exceptions.PermissionDeniedError, True),
        (response(200, PAGE), None, exceptions.InvalidResponseError, True),
        (response(200, {"status": "error", "message": "queued"}), None, exceptions.ServiceError, False),
        (response(200, {"status": "error", "message": "maintenance"}), PATTERN, exceptions.ServiceError, True),
        (response(200, {"status": "error", "message": "no such file"}), PATTERN, exceptions.NotFoundError, False),
        (response(200, {"message": "no such file"}), PATTERN, None, False),
        (response(200, {"code": 403, "message": "no such file"}), PATTERN, exceptions.PermissionDeniedError, True),
        (response(200, {"code": 500, "message": "no such file"}), PATTERN, exceptions.TransientServiceError, False),
    ],
)
def test_a_poll_is_about_the_file_only_if_the_service_says_so(got: Response, pattern: Any, kind: Any, inconclusive: bool) -> None:
    verdict = classify_response(CallContext(CREATE_DOWNLOAD_LINK, not_found_pattern=pattern), got, read_content(got))
    found = (verdict.error, verdict.inconclusive) if isinstance(verdict, Failure) else (None, False)
    assert found == (kind, inconclusive)


def test_only_an_unknown_outcome_is_remembered_as_a_possible_success() -> None:
    context = CallContext(DELETE_FOLDER)
    for unknown in (exceptions.TransientServiceError, exceptions.OutcomeUnknownError):
        assert Failure(unknown, "").remembered_in(context).may_have_succeeded
    for known in (exceptions.ServiceUnreachableError, exceptions.RateLimitError, exceptions.AuthenticationError):
        assert Failure(known, "").remembered_in(context) == context


def test_what_responds_in_place_of_the_api_is_named_in_the_advice() -> None:
    for status, advice in ((405, "Something other than the version 2 API responds there"), (308, "the final base URL")):
        verdict = classify_response(CallContext(DELETE_FOLDER), response(status), read_content(response(status)))
        assert isinstance(verdict, Failure)
        assert advice in verdict.advice


@pytest.mark.parametrize(
    ("error", "about_service"),
    [
        (exceptions.RateLimitError("x"), True),
        (exceptions.OutcomeUnknownError("x"), True),
        *[(exceptions.BadRequestError("x", status=status), True) for status in (399, 405)],
        *[(exceptions.BadRequestError("x", status=status), False) for status in (400, 422)],
        (exceptions.RequestRejectedError("x", status=409), False),
        (exceptions.AuthenticationError("x", status=401), False),
        (exceptions.ServiceError("x", status=200), False),
        (exceptions.InvalidInputError("x"), False),
    ],
)
def test_a_failure_is_of_the_service_or_of_the_url(error: exceptions.CloudStoreError, about_service: bool) -> None:
    assert is_about_service(error) is about_service


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("120", 120), (" 7 ", 7), ("1.5", None),
        ("86401", 86400), ("9" * 5000, 86400), ("Fri, 31 Dec 9999 00:00:00 GMT", 86400),
        ("Thu, 01 Jan 2026 00:02:01 GMT", 120), ("Thu, 01 Jan 2026 00:02:01 +0100", None),
        ("Thu, 01 Jan 2026 00:00:01 GMT", None),
        ("Thursday, 01-Jan-26 00:02:01 GMT", 120), ("Thu Jan  1 00:02:00 2026", None),
        ("", None), ("soon", None), ("-5", None), ("١٢", None),
        ("Thu, 99 Jan 2026 00:02:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_an_http_date_to_come_and_without_it_a_503_leaves_an_upload_in_doubt(
    value: str, seconds: float | None
) -> None:
    assert retry_after(response(429, retry_after=value)) == seconds
    kind = exceptions.OutcomeUnknownError if seconds is None else exceptions.RateLimitError
    assert judged(UPLOAD_FROM_URL, response(503, retry_after=value)) is kind
    assert judged(UPLOAD_FROM_URL, response(429, retry_after=value)) is exceptions.RateLimitError


@pytest.mark.parametrize(
    ("got", "has_result"),
    [
        (response(503, b"<!DOCTYPE html><h1>Error 503 Backend fetch failed</h1>", retry_after="5"), False),  # Varnish's
        (replace(response(503), headers={"retry-after": "5"}), False),
        (response(503, {"file_id": "f1"}, retry_after="5"), True),
    ],
)
def test_a_503_with_a_time_that_is_no_clear_response_leaves_an_upload_in_doubt(got: Response, has_result: bool) -> None:
    assert judged(UPLOAD_FROM_URL, got, has_result) is exceptions.OutcomeUnknownError
    assert judged(UPLOAD_FROM_URL, replace(got, status=429), has_result) is exceptions.RateLimitError
    assert judged(DELETE_FOLDER, got, has_result) is exceptions.RateLimitError
