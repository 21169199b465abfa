"""What an attempt ended with, as one signal; ``failures.py`` says which error each signal is.

A response is read in this order: what the connection's owner declared, then the HTTP status, then a short convention, which can
only make an error of a 2xx response (``services.py`` has its names).
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore.protocol import services
from airflow_provider_cloudstore.protocol.bodies import Body
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.paths import plain
from airflow_provider_cloudstore.protocol.services import Service

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
    MAYBE_MISSING = auto()
    """HTTP 404 that is no JSON: it may be a front end's."""
    NO_SUCH_PATH = auto()
    """HTTP 404 that is not about the subject: a web page, or not what the connection says that "not found" looks like."""
    REJECTED = auto()
    BAD_REQUEST = auto()
    WRONG_METHOD = auto()
    REDIRECT = auto()
    STATED_ERROR = auto()
    """A 2xx response that says that it is an error."""
    OTHER_ERROR = auto()
    """The same, where the connection says what "not found" looks like, and it does not look like that."""
    NOT_A_RESPONSE = auto()
    """A 2xx response that cannot be the service's."""
    NO_RESULT = auto()
    """A success without the download token."""
    NO_FILE_ID = auto()
    """A success of an upload without the id that the connection says it has."""
    NOT_YET = auto()
    """The service is still working on what the operation asked for."""


_OF_STATUS: dict[int, Signal] = {
    401: Signal.TOKEN_REFUSED,
    403: Signal.FORBIDDEN,
    405: Signal.WRONG_METHOD,
    407: Signal.PROXY_REFUSED,
    408: Signal.IN_DOUBT,
    **dict.fromkeys((404, 410), Signal.MISSING),
    **dict.fromkeys((400, 411, 413, 414, 415, 422), Signal.BAD_REQUEST),
    **dict.fromkeys((425, 429), Signal.LIMITED),  # RFC 8470 section 5.2, RFC 6585 section 4: neither had an effect
}
_OF_CLASS = {3: Signal.REDIRECT, 4: Signal.REJECTED}  # all others are in doubt, also what no HTTP exchange ends with: 101, 999
_OF_FAILURE = {FailureKind.OUTCOME_UNKNOWN: Signal.IN_DOUBT, FailureKind.PROXY_REFUSED: Signal.PROXY_REFUSED}
_STATED = (401, 403, 404, 410, 429, *range(500, 600))
"""The numbers in a body that mean the HTTP status; no other means more than "an error"."""
# Beyond the connection's own patterns: English that a service writes of its own token, and not of what a source answered it.
_CREDENTIAL = r"(?<![a-z])(?:token|(?:api ?)?key|session|credentials)"
_TOKEN_REFUSED = re.compile(
    rf"\b(?:invalid|bad|expired|wrong)[ _-](?:or expired )?['\"]?(?:access[ _-]|api[ _-]|auth[ _-])?{_CREDENTIAL}\b"
    rf"|{_CREDENTIAL}['\"]?[ _-](?:is |has )?(?:invalid|expired)\b"
    r"|\b(?:not logged in|log ?in required|require login|unauthori[sz]ed|unauthenticated|not authori[sz]ed|reauthenticate)\b",
    re.IGNORECASE,
)
_OF_A_SOURCE = re.compile(r"\b(?:remote|source|url|fetch\w*|origin|upstream|download)\b|://", re.IGNORECASE)
_OPEN_TO_WORDS = (Signal.STATED_ERROR, Signal.NO_RESULT, Signal.FORBIDDEN, Signal.REJECTED, Signal.BAD_REQUEST)
_INTERNAL = re.compile(r"\binternal\b.*\berror\b|\binternal_?error\b|\bserver error\b|\bdatabase", re.IGNORECASE)
_ERROR_STATE = re.compile("(?:error|fail).*", re.DOTALL)
_NUMBER = re.compile("-?[0-9]{1,9}")
_NOTHING = ("", "0", "false", "none", "null", "ok", "success", "no error")
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken one must not delay a task for years
_SECONDS = re.compile(r"\d+", re.ASCII)


def of_status(status: int) -> Signal:
    """What an HTTP status alone means; a 2xx is not looked at."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, Signal.IN_DOUBT)


def of_failure(failure: TransportFailure) -> Signal:
    """What a request without a complete response means."""
    return _OF_FAILURE.get(failure.kind, Signal.UNREACHABLE)


def of_response(
    operation: type[Operation[Any]] | Operation[Any], response: Response, body: Body, service: Service, *, has_result: bool
) -> Signal:
    """What a response means.

    :param has_result: whether it holds what the operation asked for: a file's id, or a download token.
    """
    is_2xx = 200 <= response.status < 300
    if is_2xx and not body.problem and not _is_error(operation, body, service, has_result=has_result):
        return _of_success(operation, response, body, service, has_result=has_result)
    if is_2xx and body.problem:
        return Signal.NOT_A_RESPONSE
    status = stated_status(body) if is_2xx else response.status
    signal = of_status(status) if status else Signal.STATED_ERROR
    if has_result and not operation.idempotent:
        return Signal.IN_DOUBT  # it has a file's id
    declared = None if 500 <= response.status <= 599 else _declared(operation, body, service)
    return declared or _of_error(operation, signal, response, body, service)


def _of_error(operation: Any, signal: Signal, response: Response, body: Body, service: Service) -> Signal:
    """What an error means of which the connection says nothing."""
    if response.status == 503 and is_rate_limit(response):
        # A front end's page (Varnish's, after a timeout), and what may be cut off, leave an upload in doubt.
        is_clear = "content-length" in response.headers and not body.problem
        return Signal.LIMITED if is_clear or operation.idempotent else Signal.IN_DOUBT
    if signal is not Signal.MISSING:
        return _of_words(operation, signal, body, service)
    if body.problem or (service.not_found_pattern and operation.has_subject):
        return Signal.NO_SUCH_PATH
    return signal if isinstance(body.data, dict) else Signal.MAYBE_MISSING


def _is_error(operation: Any, body: Body, service: Service, *, has_result: bool) -> bool:
    """Whether a 2xx response says that it is an error: by the declaration, or else by the convention."""
    condition = service.condition_of(operation.key)
    if condition and isinstance(body.data, (dict, list)):
        return not condition.holds(body.data)
    return has_sign_of_error(body, has_result=has_result)


def has_sign_of_error(body: Body, *, has_result: bool) -> bool:
    """Whether the convention makes an error of a 2xx response."""
    if not isinstance(body.data, dict):
        return body.data is False
    fields = _plain_fields(body)
    codes = [number for name in services.ERROR_CODES if (number := _number(fields.get(name))) is not None]
    return (
        any(fields.get(name) is False or _is_error_status(fields.get(name)) for name in services.ERROR_STATES)
        or bool(_error_states(body))
        or any(_says_nothing(fields[name]) for name in services.ERROR_FLAGS if fields.get(name) is not None)
        or any(not (number in (0, 1) or 200 <= number <= 299) for number in codes)
        or (not has_result and any(not _says_nothing(fields.get(name)) for name in services.ERROR_FIELDS))
    )


def stated_status(body: Body) -> int | None:
    """The HTTP status that a number in the body means, or None."""
    fields = _plain_fields(body)
    numbers = (_number(fields.get(name)) for name in (*services.ERROR_CODES, *services.ERROR_STATES))
    return next((number for number in numbers if number in _STATED), None)


def _plain_fields(body: Body) -> dict[str, Any]:
    return {plain(name): value for name, value in body.data.items()} if isinstance(body.data, dict) else {}


def _error_states(body: Body) -> list[str]:
    states = (_plain_fields(body).get(name) for name in services.ERROR_STATES)
    return [state for state in states if isinstance(state, str) and _ERROR_STATE.match(state.strip().lower())]


def _number(value: Any) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else -1  # no success has such a code
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value.strip())) else None


def _is_error_status(value: Any) -> bool:
    return 400 <= (_number(value) or 0) <= 599


def _says_nothing(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return all(map(_says_nothing, value.values() if isinstance(value, dict) else value))
    return value == 0 or str(value).strip().lower() in _NOTHING


def _of_success(operation: Any, response: Response, body: Body, service: Service, *, has_result: bool) -> Signal:
    """What a 2xx response means that is no error."""
    if not operation.needs_result(service):
        return Signal.SUCCESS
    if has_result:  # a plain text may be words
        words = isinstance(body.data, str) and (
            _declared(operation, body, service) or _of_words(operation, Signal.NO_RESULT, body, service)
        )
        return words if words and words is not Signal.NO_RESULT else Signal.SUCCESS
    if not operation.idempotent:
        return Signal.NO_FILE_ID
    if declared := _declared(operation, body, service):
        return declared
    states = _plain_fields(body)
    is_pending = any(str(states.get(name)).lower() in services.PENDING_STATES for name in services.ERROR_STATES)
    return Signal.NOT_YET if response.status == 202 or is_pending else _of_words(operation, Signal.NO_RESULT, body, service)


def _declared(operation: Any, body: Body, service: Service) -> Signal | None:
    """What the connection's owner says that an error means; a web page is never the service's word."""
    patterns = [(Signal.TOKEN_REFUSED, service.token_refused_pattern)]
    if operation.has_subject:
        patterns.append((Signal.MISSING, service.not_found_pattern))
    if body.problem or body.data is None:
        return None
    texts = (words_of(body, service), body.text)
    return next((means for means, pattern in patterns if pattern and any(map(pattern.search, texts))), None)


def _of_words(operation: Any, signal: Signal, body: Body, service: Service) -> Signal:
    """What a signal is after what the service says in words, where the connection's owner has not said what they mean."""
    if signal not in _OPEN_TO_WORDS or body.problem:
        return signal
    words = words_of(body, service)
    if not service.token_refused_pattern and _TOKEN_REFUSED.search(words) and not _OF_A_SOURCE.search(words):
        return Signal.TOKEN_REFUSED
    if signal is not Signal.STATED_ERROR:
        return signal
    if _INTERNAL.search(words):
        return Signal.IN_DOUBT
    return Signal.OTHER_ERROR if operation.has_subject and service.not_found_pattern else signal


def words_of(body: Body, service: Service) -> str:
    """What the service says, with single spaces: plain text, the first text or number where its words are, or a state's error."""
    if body.problem:
        return ""
    found = [body.data] if isinstance(body.data, str) else [*service.message_path.values_in(body.data), *_error_states(body)]
    texts = (" ".join(str(one).split()) for one in found if isinstance(one, (str, int)) and not isinstance(one, bool))
    return next(filter(None, texts), "")


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
