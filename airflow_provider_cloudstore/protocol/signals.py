"""The first step of what an attempt means: which signal its response, or its failure, is. ``failures.py`` says what follows.

- What a 2xx response says of itself counts: extra ``success_when`` where it is set, else the signs of ``contents.py``. A number
  from 400 to 599 counts as that HTTP status.
- An upload that has an id was queued: whatever sign of an error stands beside it leaves it in doubt, and so does a missing id
  where extra ``file_id_path`` says that there is one.
- Words are the service's own: that the token is refused, that the subject is missing, that it failed inside. A web page is never
  its word: it may be a front end's, or of another host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol.contents import Content
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.results import is_pending, value_at
from airflow_provider_cloudstore.protocol.settings import Settings

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
    NO_EVIDENCE = auto()
    """A success of an upload that lacks the id that the connection's owner says it has."""
    NOT_YET = auto()
    """The service is still working on what the operation asked for."""


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
# What the words of an error may make another signal of.
_OPEN_TO_WORDS = {
    Signal.STATED_ERROR, Signal.NO_RESULT, Signal.FORBIDDEN, Signal.MISSING, Signal.NO_SUCH_PATH, Signal.REJECTED,
    Signal.BAD_SUBJECT, Signal.BAD_REQUEST,
}  # fmt: skip
_PRECEDENCE = {Signal.IN_DOUBT: 0, Signal.MISSING: 2}
_CREDENTIALS = (
    r"(?:(?:access|auth|api|premium|bearer|session)[ _-]?)?"
    r"(?<!download[ _-])(?<!share[ _-])(?<!file[ _-])(?:token|key|apikey|session|credentials?|authentication|login|ks)"
)
_REFUSED = r"(?:invalid|expired|bad|wrong|incorrect|revoked|not valid|no longer valid|could not (?:be )?validate)"
_TOKEN_REFUSED = re.compile(
    rf"\b{_REFUSED}[ _'\"]{{1,3}}(?:the |your |or expired )?{_CREDENTIALS}\b"
    rf"|\b{_CREDENTIALS}['\"]?(?: \w+){{0,2}}[ _]{_REFUSED}\b"
    r"|\b(?:require[sd]? log[ -]?in|log[ -]?in (?:is )?required|not logged in|re-?authenticate|un-?authori[sz]ed|unauthenticated"
    r"|not authori[sz]ed|not authenticated|no_?auth|authentication (?:failed|required))\b",
    re.IGNORECASE,
)
_OF_A_SOURCE = re.compile(r"\b(?:remote|source|url|uri|fetch\w*|origin|upstream|hoster?|returned|responded)\b|://", re.IGNORECASE)
_INTERNAL = re.compile(r"\binternal\b|\bdatabase\b|\bserver error\b|\bunexpected\b|\btimed? ?out\b|DATABASE_ERROR", re.IGNORECASE)
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken one must not delay a task for years
_SECONDS = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Seen:
    """A signal; what happened, one clause; the HTTP status, or the one that a 2xx response states, None without a response."""

    signal: Signal
    reason: str
    status: int | None = None


def of_status(status: int) -> Signal:
    """What an HTTP status alone means; a 2xx is not looked at."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, Signal.IN_DOUBT)


def of_failure(failure: TransportFailure) -> Seen:
    """What a request without a complete response means."""
    return Seen(_OF_FAILURE.get(failure.kind, Signal.UNREACHABLE), failure.reason)


def of_response(operation: Operation[Any], response: Response, content: Content, settings: Settings, *, has_result: bool) -> Seen:
    """What a response means; ``has_result``: whether it holds a file's id or a download token, as the operation asked for."""
    if 200 <= response.status < 300:
        return _of_2xx(operation, response, content, settings, has_result)
    signal = _of_other_status(operation, response, content, has_result)
    if 400 <= response.status < 500:
        signal = _of_words(operation, signal, content, settings)
    return Seen(signal, f"HTTP {response.status}", response.status)


def _of_2xx(operation: Operation[Any], response: Response, content: Content, settings: Settings, has_result: bool) -> Seen:
    reason, signs = f"HTTP {response.status}", content.signs
    stated = _stated(content)
    is_error = signs.is_error or (signs.mentions_error and not has_result)
    if settings.success_when and content.top is not None:
        found = ((_as_text(value_at(content.top, path)), wanted.casefold()) for path, wanted in settings.success_when)
        is_error = all(text != wanted for text, wanted in found)
    if is_error:
        reason += f", but the service reports an error{f' ({stated})' if stated else ''}"
        return Seen(_of_error(operation, content, stated, settings, has_result), reason, stated or response.status)
    if content.problem:
        signal = Signal.WEB_PAGE if content.is_web_page else Signal.NOT_A_RESPONSE
        return Seen(signal, f"{reason} with {content.problem}", response.status)
    return Seen(_of_success(operation, response, content, settings, has_result), reason, response.status)


def _of_error(operation: Operation[Any], content: Content, stated: int | None, settings: Settings, has_result: bool) -> Signal:
    """What a 2xx response means that says that it is an error."""
    if has_result and not operation.idempotent:
        return Signal.IN_DOUBT  # it has a file's id
    signal = _about_subject(operation, of_status(stated), content) if stated else Signal.STATED_ERROR
    signal = _of_words(operation, signal, content, settings)
    if stated or signal in (Signal.TOKEN_REFUSED, Signal.MISSING):
        return signal
    is_code_alone = not (content.signs.says_error or content.signs.mentions_error)
    # Nothing says that an upload failed, or nothing but a code of the service's own.
    is_unclear = not operation.idempotent and is_code_alone and not (content.signs.codes and content.words)
    return Signal.IN_DOUBT if is_unclear or _INTERNAL.search(content.words) else signal


def _of_success(operation: Operation[Any], response: Response, content: Content, settings: Settings, has_result: bool) -> Signal:
    """What a 2xx response means that shows no sign of an error."""
    if has_result or not operation.must_hold_result(settings):
        return Signal.SUCCESS
    if not operation.idempotent:
        return Signal.NO_EVIDENCE
    if response.status == 202 or is_pending(content):
        return Signal.NOT_YET
    return _of_words(operation, Signal.NO_RESULT, content, settings) if isinstance(content.data, dict) else Signal.NO_RESULT


def _of_words(operation: Operation[Any], signal: Signal, content: Content, settings: Settings) -> Signal:
    """What a signal is after what the service says in words, which is shown whatever that is."""
    if signal not in _OPEN_TO_WORDS or content.is_web_page:
        return signal
    for means, pattern in (
        (Signal.TOKEN_REFUSED, settings.token_refused_pattern),
        (Signal.MISSING, settings.not_found_pattern if operation.has_subject and content.top is not None else None),
    ):
        if pattern and content.message and pattern.search(content.message):
            return means
    if refuses_token(content):
        return Signal.TOKEN_REFUSED
    return Signal.OTHER_ERROR if signal is Signal.STATED_ERROR and settings.not_found_pattern else signal


def refuses_token(content: Content) -> bool:
    """Whether words say that the access token is refused, and not what a source answered."""
    return not _OF_A_SOURCE.search(content.words) and bool(_TOKEN_REFUSED.search(content.message))


def _as_text(value: Any) -> str:
    return (str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)).strip().casefold()


def _of_other_status(operation: Operation[Any], response: Response, content: Content, has_result: bool) -> Signal:
    if has_result and not operation.idempotent and of_status(response.status) is not Signal.LIMITED:
        return Signal.IN_DOUBT  # it has a file's id
    # A front end's page (Varnish's, after a timeout), and what may be cut off, leave an upload in doubt.
    says_enough = "content-length" in response.headers and not content.problem
    if response.status == 503 and is_rate_limit(response) and (operation.idempotent or says_enough):
        return Signal.LIMITED
    signal, stated = of_status(response.status), _stated(content)
    if signal is Signal.MISSING and stated:
        signal = of_status(stated)  # the service's own word is nearer to the subject than a front end's status
    return _about_subject(operation, signal, content)


def _about_subject(operation: Operation[Any], signal: Signal, content: Content) -> Signal:
    """What a signal is if the response cannot be about the subject: a page, what is broken, or an operation that has none."""
    if content.problem:
        return _OF_A_PAGE.get(signal, signal)
    return signal if operation.has_subject else _WITHOUT_SUBJECT.get(signal, signal)


def _stated(content: Content) -> int | None:
    """The HTTP status that a response states; of several, one in doubt comes first, and "not found" last."""
    return min(content.signs.statuses, key=lambda one: _PRECEDENCE.get(of_status(one), 1), default=None)


def is_rate_limit(response: Response) -> bool:
    """Whether the service asks for the request later, so it had no effect: HTTP 425 and 429, or 503 with a time.

    A 503 may come from a front end after the upload was queued, so its ``Retry-After`` must name a time: a date that has passed
    says nothing about this request.
    """
    return of_status(response.status) is Signal.LIMITED or (response.status == 503 and retry_after(response) is not None)


def retry_after(response: Response) -> float | None:
    """Seconds that the service asks to wait: whole ones, or an HTTP date to come (RFC 9110 section 10.2.3); at most a day."""
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
