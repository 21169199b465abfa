from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from tests.support import VALUES, response, settings

PATTERN = re.compile("no such file", re.IGNORECASE)
PAGE = b"<html>no such file</html>"
ENVELOPE = {"status": "error", "message": "no such file"}


def judged(
    operation: type[Operation[Any]], got: Response, *, in_doubt: bool = False, ignore_missing: bool = False, **own: Any
) -> Any:
    """The result, or the error, of an operation whose attempt ended so."""
    (parameter,) = operation.own_parameters
    options: dict[str, Any] = {"ignore_missing": True} if ignore_missing else {}
    if in_doubt and operation is UploadFromUrl:
        options["retry_unknown_outcome"] = True
    asked = operation(settings(**own), VALUES[parameter], **options)
    return Attempt(asked, settings(**own), in_doubt=in_doubt).interpret(got)


@pytest.mark.parametrize("sent", [False, True])
def test_only_an_unknown_outcome_may_have_been_sent(sent: bool) -> None:
    for operation in OPERATIONS:
        asked = operation(settings(), *map(VALUES.get, operation.own_parameters))
        failure = TransportFailure(sent, "why")
        first, later = (Attempt(asked, settings(), 2, in_doubt).interpret(failure) for in_doubt in (False, True))
        assert isinstance(first, exceptions.CloudStoreError)
        assert isinstance(later, exceptions.CloudStoreError)
        assert first.sent is sent
        assert later.sent


@pytest.mark.parametrize(
    ("operation", "known", "got", "verdict"),
    [
        (DeleteFolder, {"ignore_missing": True, "not_found_pattern": PATTERN}, response(200, ENVELOPE), False),
        (UploadFromUrl, {"not_found_pattern": PATTERN}, response(200, ENVELOPE), exceptions.ServiceError),  # no subject
        (DeleteFolder, {"ignore_missing": True}, response(404, ENVELOPE), False),
        (DeleteFolder, {"in_doubt": True}, response(410, ENVELOPE), None),
        (DeleteFolder, {"in_doubt": True}, response(404, b"<html>"), exceptions.RequestRejectedError),
        (DeleteFolder, {"in_doubt": True}, response(200), True),
        (DeleteFolder, {"in_doubt": True}, response(429), exceptions.RateLimitError),
        (CreateDownloadLink, {"in_doubt": True}, response(404, ENVELOPE), exceptions.NotFoundError),
        (UploadFromUrl, {"in_doubt": True}, response(429), exceptions.RateLimitError),
        (UploadFromUrl, {"in_doubt": True}, response(403), exceptions.PermissionDeniedError),
        (UploadFromUrl, {"in_doubt": True}, response(200, PAGE), exceptions.InvalidResponseError),
        (UploadFromUrl, {"in_doubt": True}, response(503, PAGE, retry_after="5"), exceptions.TransientServiceError),
        (UploadFromUrl, {"in_doubt": True}, response(200, ENVELOPE | {"file_id": "f1"}), exceptions.ServiceError),
        (UploadFromUrl, {"in_doubt": True}, response(401), exceptions.AuthenticationError),
    ],
)
def test_what_is_asked_for_and_what_earlier_attempts_left_open_decide_too(
    operation: type[Operation[Any]], known: dict[str, Any], got: Response, verdict: Any
) -> None:
    ended = judged(operation, got, **known)
    if isinstance(ended, exceptions.CloudStoreError):
        says_so = "earlier attempt may have been carried out" in ended.reason
        assert says_so is (known.get("in_doubt", False) and not ended.may_have_effect)
    assert (type(ended) if isinstance(ended, exceptions.CloudStoreError) else ended.existed) == verdict


@pytest.mark.parametrize(
    ("got", "pattern", "kind", "wait"),
    [
        (response(404, ENVELOPE), None, exceptions.NotFoundError, "goes on"),
        (response(404), None, exceptions.RequestRejectedError, "tolerates"),
        (response(404, {"message": "no route"}), PATTERN, exceptions.RequestRejectedError, "tolerates"),
        (response(404, PAGE), PATTERN, exceptions.RequestRejectedError, "tolerates"),
        (response(400, {"message": "bad"}), None, exceptions.BadRequestError, "tolerates"),
        (response(401, {"error": "no"}), PATTERN, exceptions.AuthenticationError, "ends"),
        (response(302), None, exceptions.BadRequestError, "tolerates"),
        (response(409), None, exceptions.RequestRejectedError, "tolerates"),
        (response(403), None, exceptions.PermissionDeniedError, "tolerates"),
        (response(200, PAGE), None, exceptions.InvalidResponseError, "tolerates"),
        (response(200, {"status": "error", "message": "queued"}), None, exceptions.ServiceError, "tolerates"),
        (response(200, {"status": "error", "message": "maintenance"}), PATTERN, exceptions.ServiceError, "tolerates"),
        (response(200, ENVELOPE), PATTERN, exceptions.NotFoundError, "goes on"),
        (response(429, {"message": "wait"}), PATTERN, exceptions.RateLimitError, "goes on"),
        (response(500, {"error": "no such file"}), PATTERN, exceptions.TransientServiceError, "goes on"),
        (response(202, b""), None, exceptions.NotFoundError, "goes on"),
    ],
)
def test_a_wait_goes_on_tolerates_or_ends_by_what_the_service_says(got: Response, pattern: Any, kind: Any, wait: str) -> None:
    ended = judged(CreateDownloadLink, got, not_found_pattern=pattern)
    assert (type(ended), ended.wait) == (kind, wait)


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
    assert response(429, retry_after=value).retry_after == seconds
    kind = exceptions.OutcomeUnknownError if seconds is None else exceptions.RateLimitError
    assert type(judged(UploadFromUrl, response(503, retry_after=value))) is kind
    assert type(judged(UploadFromUrl, response(429, retry_after=value))) is exceptions.RateLimitError


def test_a_503_with_a_time_that_is_a_web_page_leaves_an_upload_in_doubt() -> None:
    got = response(503, b"<!DOCTYPE html><h1>Error 503 Backend fetch failed</h1>", retry_after="5")  # Varnish's
    assert type(judged(UploadFromUrl, got)) is exceptions.OutcomeUnknownError
    assert judged(DeleteFolder, got).retry_after == 5


def test_only_a_link_is_not_ready_yet_and_what_must_not_be_repeated_is_unknown_without_its_result() -> None:
    class Copy(CreateDownloadLink):
        may_be_repeated = may_be_pending = False

    for got in (response(202, b""), response(200, {"status": "pending"})):
        assert type(judged(CreateDownloadLink, got)) is exceptions.NotFoundError
        assert type(judged(Copy, got)) is exceptions.OutcomeUnknownError
    assert [operation for operation in OPERATIONS if operation.may_be_pending] == [CreateDownloadLink]
