"""The first step of what an attempt means: which signal its response, or its failure, is. ``failures.py`` says what follows.

- An error that a 2xx response states as a number from 400 to 599 counts as that HTTP status. 408, 425, 429 and 5xx may be
  stated of an upload that was queued: its outcome is in doubt.
- An error envelope, or JSON with HTTP 400, whose words match extra ``not_found_pattern`` means that the subject is missing; it
  overrides neither a 401 nor a number that a 2xx response states. An upload has no subject that could be missing.
- A web page is never the service's word on a subject: it may be a front end's, or of another host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.results import Content

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation


class Signal(Enum):
    """What an attempt ended with."""

    SUCCESS = auto()
    UNREACHABLE = auto()
    """No connection was made."""
    PROXY_REFUSED = auto()
    """A proxy refused its credentials."""
    LIMITED = auto()
    """The service asks for the request later."""
    IN_DOUBT = auto()
    """The request may have been carried out."""
    TOKEN_REFUSED = auto()
    FORBIDDEN = auto()
    MISSING = auto()
    """The service says that the subject does not exist."""
    NO_SUCH_PATH = auto()
    """The path does not exist, or a page says so of something."""
    REJECTED = auto()
    BAD_SUBJECT = auto()
    """The service does not accept the id or URL."""
    BAD_REQUEST = auto()
    WRONG_METHOD = auto()
    REDIRECT = auto()
    STATED_ERROR = auto()
    """A 2xx response that says that it is an error."""
    OTHER_ERROR = auto()
    """The same, and extra ``not_found_pattern`` does not match it."""
    NOT_A_RESPONSE = auto()
    """A 2xx response that cannot be the service's."""
    WEB_PAGE = auto()
    """The same: a web page."""
    NO_RESULT = auto()
    """A success that lacks what the operation asked for."""


_OF_STATUS: dict[int, Signal] = {
    400: Signal.BAD_SUBJECT,
    401: Signal.TOKEN_REFUSED,
    403: Signal.FORBIDDEN,
    405: Signal.WRONG_METHOD,
    407: Signal.PROXY_REFUSED,
    408: Signal.IN_DOUBT,
    **dict.fromkeys((404, 410), Signal.MISSING),
    **dict.fromkeys((411, 413, 414, 415, 422), Signal.BAD_REQUEST),
    **dict.fromkeys((425, 429), Signal.LIMITED),  # RFC 8470 section 5.2, RFC 6585 section 4: neither had an effect
}
_OF_CLASS = {3: Signal.REDIRECT, 4: Signal.REJECTED}  # all others are in doubt, also what no HTTP exchange ends with: 101, 999
# Of what no front end's page and no subject says anything.
_WITHOUT_SUBJECT = {Signal.MISSING: Signal.NO_SUCH_PATH}
_OF_A_PAGE = {Signal.MISSING: Signal.NO_SUCH_PATH, Signal.BAD_SUBJECT: Signal.BAD_REQUEST}
_OF_FAILURE = {FailureKind.OUTCOME_UNKNOWN: Signal.IN_DOUBT, FailureKind.PROXY_REFUSED: Signal.PROXY_REFUSED}
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken one must not delay a task for years
_SECONDS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Seen:
    """A signal.

    :param signal: which one.
    :param reason: what happened, one clause.
    :param status: the HTTP status, or the one that a 2xx response states; None without a response.
    """

    signal: Signal
    reason: str
    status: int | None = None


def of_status(status: int) -> Signal:
    """What an HTTP status alone means; a 2xx is not looked at."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, Signal.IN_DOUBT)


def of_failure(failure: TransportFailure) -> Seen:
    """What a request without a complete response means."""
    return Seen(_OF_FAILURE.get(failure.kind, Signal.UNREACHABLE), failure.reason)


def of_response(
    operation: Operation[Any], response: Response, content: Content, *, has_result: bool, pattern: re.Pattern[str] | None
) -> Seen:
    """What a response means.

    :param has_result: whether it holds what the operation asked for: a file's id, or a download token.
    :param pattern: what the message of an error matches that means "not found".
    """
    if 200 <= response.status < 300:
        return _of_2xx(operation, response, content, has_result, pattern)
    is_error = content.is_error or content.mentions_error or response.status == 400
    if is_error and response.status != 401 and _says_missing(operation, content, pattern):
        signal = Signal.MISSING
    else:
        signal = _of_other_status(operation, response, content, has_result)
    return Seen(signal, f"HTTP {response.status}", response.status)


def _of_2xx(
    operation: Operation[Any], response: Response, content: Content, has_result: bool, pattern: re.Pattern[str] | None
) -> Seen:
    stated, reason = _stated(content), f"HTTP {response.status}"
    if content.is_error or (content.mentions_error and not has_result):
        reason += f", but the service reports an error{f' ({stated})' if stated else ''}"
        signal = _of_error(operation, content, stated, has_result, pattern)
    elif content.problem:
        reason += f" with {content.problem}"
        signal = Signal.WEB_PAGE if content.is_web_page else Signal.NOT_A_RESPONSE
    else:
        signal = Signal.NO_RESULT if operation.needs_result and not has_result else Signal.SUCCESS
    return Seen(signal, reason, stated or response.status)


def _of_error(
    operation: Operation[Any], content: Content, stated: int | None, has_result: bool, pattern: re.Pattern[str] | None
) -> Signal:
    """What a 2xx response means that says that it is an error."""
    if not operation.idempotent and (has_result or _leaves_in_doubt(stated)):
        return Signal.IN_DOUBT
    if stated:
        return _about_subject(operation, of_status(stated), content)
    if _says_missing(operation, content, pattern):
        return Signal.MISSING
    return Signal.OTHER_ERROR if pattern else Signal.STATED_ERROR


def _of_other_status(operation: Operation[Any], response: Response, content: Content, has_result: bool) -> Signal:
    # A front end's page (Varnish's, after a timeout), what may be cut off, and a file's id leave an upload in doubt.
    says_enough = "content-length" in response.headers and not content.problem and not has_result
    if response.status == 503 and is_rate_limit(response) and (operation.idempotent or says_enough):
        return Signal.LIMITED
    return _about_subject(operation, of_status(response.status), content)


def _about_subject(operation: Operation[Any], signal: Signal, content: Content) -> Signal:
    """What a signal is if the response cannot be about the subject: a page, or an operation that has none."""
    if content.is_web_page:
        return _OF_A_PAGE.get(signal, signal)
    return signal if operation.has_subject else _WITHOUT_SUBJECT.get(signal, signal)


def _says_missing(operation: Operation[Any], content: Content, pattern: re.Pattern[str] | None) -> bool:
    """Whether the words of an error mean that the subject does not exist."""
    is_envelope = operation.has_subject and isinstance(content.data, dict)
    return bool(pattern and is_envelope and content.message and pattern.search(content.message))


def _stated(content: Content) -> int | None:
    """The HTTP status that a 2xx response states; if it states several, the one in doubt."""
    found = content.stated_statuses
    return next(filter(_leaves_in_doubt, found), found[0]) if found else None


def _leaves_in_doubt(stated: int | None) -> bool:
    """Whether who states a status in a 2xx response may have queued an upload before it failed."""
    return stated is not None and of_status(stated) in (Signal.IN_DOUBT, Signal.LIMITED)


def is_rate_limit(response: Response) -> bool:
    """Whether the service asks for the request later, so it had no effect: HTTP 425 and 429, or 503 with a time.

    A 503 may come from a front end after the upload was queued, so its ``Retry-After`` must name a time: a date that has passed
    says nothing about this request.
    """
    return of_status(response.status) is Signal.LIMITED or (response.status == 503 and retry_after(response) is not None)


def retry_after(response: Response) -> float | None:
    """Seconds that the service asks to wait: whole ones, or an HTTP date to come (RFC 9110 section 10.2.3); at most a day.

    :param response: the response; a date is relative to its arrival.
    """
    value = response.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), _MAX_RETRY_AFTER)
    if not value.endswith(" GMT"):
        return None
    try:
        seconds = parsedate_to_datetime(value).timestamp() - response.received
    except (ValueError, TypeError, OverflowError):  # not a date, or one out of range
        return None
    return min(seconds, _MAX_RETRY_AFTER) if seconds > 0 else None
