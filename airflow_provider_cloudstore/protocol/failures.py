"""The failure table: what an answer, or the lack of one, means for each operation. It stands here and nowhere else.

==========================================  =======================  ======================  =============
what happened                               delete folder            remote upload           download link
==========================================  =======================  ======================  =============
never sent                                  again                    again                   again
407 from a proxy, on CONNECT                permanent                permanent               permanent
429, or 503 with ``Retry-After``            again, after that time   the same                the same
sent, outcome unknown; other 5xx            again                    ``OutcomeUnknown``      again
401                                         the connection is read again: a new token is tried, the same one is permanent
other 4xx, 3xx                              permanent                permanent               permanent
2xx with an error envelope                  error, Airflow retries   the same                the same
2xx that cannot be the service's answer     error, Airflow retries   ``OutcomeUnknown``      error, Airflow retries
==========================================  =======================  ======================  =============
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

import pendulum

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.answers import Json, error_words, is_web_page
from airflow_provider_cloudstore.protocol.operations import Operation
from airflow_provider_cloudstore.protocol.values import MAX_BODY_BYTES, Break, Failure, Response

_REFUSALS: dict[int, type[errors.RequestRefused]] = {
    400: errors.BadRequest,
    401: errors.TokenRefused,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    410: errors.NotFound,
}
NOT_THERE = frozenset({404, 410})

Verdict = tuple[type[errors.CloudStoreError], str]


def judge_failure(operation: Operation, failure: Failure, *, repeat: bool) -> Verdict:
    """What a request without a whole answer means.

    :param operation: what was asked.
    :param failure: how it broke.
    :param repeat: whether the caller allows to do it twice (``retry_unknown_outcome``).
    """
    if failure.kind is Break.NEVER_SENT:
        return errors.ServiceUnreachable, failure.reason
    if failure.kind is Break.PROXY_REFUSED:
        return errors.ConfigurationError, failure.reason
    return _unknown(operation, repeat), failure.reason


def judge_response(operation: Operation, response: Response, body: Json, *, repeat: bool) -> Verdict | None:
    """What an answer means: the error that it is and what happened, or None for success.

    :param operation: what was asked.
    :param response: the answer.
    :param body: its body, parsed.
    :param repeat: whether the caller allows to do it twice (``retry_unknown_outcome``).
    """
    status = response.status
    if status == 429 or (status == 503 and "retry-after" in response.headers):
        return errors.RateLimited, f"HTTP {status}"
    if status >= 500:
        return _unknown(operation, repeat), f"HTTP {status}"
    if 300 <= status < 400:
        return errors.RedirectRefused, f"HTTP {status}, a redirect"
    if not 200 <= status < 300:
        return _REFUSALS.get(status, errors.RequestRefused), f"HTTP {status}"
    return _judge_success(operation, response, body, repeat=repeat)


def _judge_success(operation: Operation, response: Response, body: Json, *, repeat: bool) -> Verdict | None:
    unusable = errors.UnusableAnswer if operation.repeatable else _unknown(operation, repeat)
    if response.too_large:
        return unusable, f"HTTP {response.status} with a body of more than {MAX_BODY_BYTES // 1024} KiB, which was cut off"
    if is_web_page(response, body):
        return unusable, f"HTTP {response.status} with a web page in place of the service's answer"
    words = error_words(body)
    if words is not None:
        return errors.ServiceError, f"HTTP {response.status}, but the service reports an error"
    return None


def _unknown(operation: Operation, repeat: bool) -> type[errors.CloudStoreError]:
    if operation.repeatable:
        return errors.ServerFailure
    return errors.RepeatableOutcomeUnknown if repeat else errors.OutcomeUnknown


def retry_after(response: Response) -> float | None:
    """Seconds that the service asks to wait (RFC 9110 section 10.2.3), or None where it names no time.

    :param response: the answer; a date is measured from when it came.
    """
    value = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", value, re.ASCII):
        return float(value)
    try:
        moment = pendulum.instance(parsedate_to_datetime(value), tz="UTC")
        seconds = (moment - response.received_at).total_seconds()
    except (ValueError, TypeError, OverflowError):  # not a date, or one that no calendar holds
        return None
    return max(0.0, seconds)
