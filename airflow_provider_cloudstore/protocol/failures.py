"""The failure table: what an answer, or the lack of one, means for each operation. It stands here and nowhere else.

==========================================  =======================  ======================  =============
what happened                               delete folder            remote upload           download link
==========================================  =======================  ======================  =============
never sent                                  again                    again                   again
407 from a proxy, on CONNECT                permanent                permanent               permanent
429, or 503 with ``Retry-After``            again, after that time   the same                the same
sent, outcome unknown; other 5xx; 101       again                    ``OutcomeUnknownError``      again
401                                         the connection is read again: a new token is tried, the same one is permanent
other 4xx, 3xx                              permanent                permanent               permanent
407, on CONNECT too                         permanent                permanent               permanent
2xx with an error envelope                  error, Airflow retries   the same                the same
2xx that cannot be the service's own        error, Airflow retries   ``OutcomeUnknownError``      error, Airflow retries
==========================================  =======================  ======================  =============
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

import pendulum

from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.content import Content
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import Operation

_REJECTIONS: dict[int, type[errors.RequestRejectedError]] = {
    400: errors.BadRequestError,
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    405: errors.MethodNotAllowedError,
    410: errors.NotFoundError,
}
PROXY_REFUSED = (
    "HTTP 407: the proxy refused its credentials; extra 'proxy' of the connection holds them (http://user:password@host:port)"
)
# What nginx, Apache and Go answer to plain http on a TLS port.
_WANTS_TLS = re.compile(r"HTTP request (?:was sent )?to (?:an )?HTTPS|HTTP to an SSL-enabled", re.IGNORECASE)

_MAX_MESSAGE_LENGTH = 2000  # of an error envelope that a user's own regular expression is applied to

_MAX_PAUSE = 1e9  # seconds, some thirty years: whoever asks for more asks for no retry

Verdict = tuple[type[errors.CloudStoreError], str]


def classify_failure(operation: Operation, failure: TransportFailure, *, retry_unknown_outcome: bool) -> Verdict:
    """What a request without a whole answer means.

    :param operation: what was asked.
    :param failure: how it broke.
    :param repeat: whether the caller allows to do it twice (``retry_unknown_outcome``).
    """
    if failure.kind is FailureKind.NEVER_SENT:
        return errors.ServiceUnreachableError, failure.reason
    if failure.kind is FailureKind.PROXY_REFUSED:
        return errors.ConfigurationError, failure.reason
    return _unknown(operation, retry_unknown_outcome), failure.reason


def classify_response(
    operation: Operation, response: Response, content: Content, *, retry_unknown_outcome: bool, gone: bool = False
) -> Verdict | None:
    """What a response means: the error that it is and what happened, or None for success.

    :param operation: what was asked.
    :param response: the response.
    :param content: what its body says.
    :param repeat: whether the caller allows to do it twice (``retry_unknown_outcome``).
    :param gone: what :func:`is_gone` says of it.
    """
    status = response.status
    if gone:
        return errors.NotFoundError, f"HTTP {status}"
    if 200 <= status < 300:
        return _classify_success(operation, status, content, retry_unknown_outcome=retry_unknown_outcome)
    if status == 429 or (status == 503 and "retry-after" in response.headers):
        return errors.RateLimitError, f"HTTP {status}"
    if 300 <= status < 400:
        return errors.RedirectError, f"HTTP {status}, a redirect"
    if 400 <= status < 500:
        return _classify_rejection(status, content)
    return _unknown(operation, retry_unknown_outcome), f"HTTP {status}"  # 5xx, and what no HTTP exchange ends with: 101, 999


def _classify_success(operation: Operation, status: int, content: Content, *, retry_unknown_outcome: bool) -> Verdict | None:
    if content.problem:
        kind = errors.InvalidResponseError if operation.idempotent else _unknown(operation, retry_unknown_outcome)
        return kind, f"HTTP {status} with {content.problem}"
    if content.error_message is not None:
        return errors.ServiceError, f"HTTP {status}, but the service reports an error"
    return None


def _classify_rejection(status: int, content: Content) -> Verdict:
    if status == 407:
        return errors.ConfigurationError, PROXY_REFUSED
    if status == 400 and _WANTS_TLS.search(content.text):
        return errors.ConfigurationError, "HTTP 400: this port expects TLS; write the connection's host with https://"
    return _REJECTIONS.get(status, errors.RequestRejectedError), f"HTTP {status}"


def is_gone(operation: Operation, response: Response, content: Content, pattern: re.Pattern[str] | None) -> bool:
    """Whether a response says that the subject does not exist. A web page says so of a page, not of a folder or a file.

    :param operation: what was asked; an upload has no subject that could be missing.
    :param response: the response.
    :param content: what its body says.
    :param pattern: what the words of an error envelope match that means "not found" (extra ``not_found_pattern``).
    """
    if not operation.idempotent or content.is_web_page:
        return False
    if response.status in (404, 410):
        return True
    message = content.error_message if pattern else None
    return bool(pattern and message and pattern.search(message[:_MAX_MESSAGE_LENGTH]))


def _unknown(operation: Operation, retry_unknown_outcome: bool) -> type[errors.CloudStoreError]:
    if operation.idempotent:
        return errors.TransientServiceError
    return errors.RetryableOutcomeUnknownError if retry_unknown_outcome else errors.OutcomeUnknownError


def retry_after(response: Response) -> float | None:
    """Seconds that the service asks to wait (RFC 9110 section 10.2.3), or None where it names no time.

    :param response: the answer; a date is measured from when it came.
    """
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
        return min(float(value), _MAX_PAUSE)
    try:
        moment = pendulum.instance(parsedate_to_datetime(value), tz="UTC")
        seconds = (moment - response.received_at).total_seconds()
    except (ValueError, TypeError, OverflowError):  # not a date, or one that no calendar holds
        return None
    return min(max(0.0, seconds), _MAX_PAUSE)
