"""Decides what an attempt means, in two steps.

First which signal it is: :func:`signal_of` finds it in a response; without a response, it is ``IN_DOUBT`` or ``UNREACHABLE``.
Then which error that is (:func:`error_of`): each signal is a row of the table in docs/operate/retries.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol import convention
from airflow_provider_cloudstore.protocol.reading import Reading

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """A row of the table.

    :param error: the class of the error, which declares its consequences and what to do about it; see :func:`error_of`.
    :param reason: what happened; ``{seen}`` stands for what was seen, and ``{missing}`` for what the response lacks. It names
        the connection and its ``{address}`` if these may be wrong.
    :param advice: what to do, in place of the advice of the class; the hints of the operation come before it.
    """

    error: type[CloudStoreError]
    reason: str = "{seen}"
    advice: str = ""


_AT_ADDRESS = "{seen} ({address})"

# Requests without a complete response.
UNREACHABLE = Signal(exceptions.ServiceUnreachableError, reason=_AT_ADDRESS)
IN_DOUBT = Signal(exceptions.TransientServiceError)
"""The request may have been carried out; so it is after HTTP 408, most 5xx, and a 2xx that states a 5xx or "internal error"."""

# Errors of the service.
LIMITED = Signal(exceptions.RateLimitError)
TOKEN_REFUSED = Signal(
    exceptions.AuthenticationError, reason="{seen}: the service refused the connection's credentials ({address})"
)
FORBIDDEN = Signal(exceptions.PermissionDeniedError, reason=_AT_ADDRESS)
MISSING = Signal(exceptions.NotFoundError)
"""The service says that the subject does not exist."""
NO_SUCH_PATH = Signal(
    exceptions.RequestRejectedError,
    reason=_AT_ADDRESS,
    advice="Check that the connection's host is the base URL, and that extra 'api_path' is the path of the calls below that URL: "
    "this may be another server's response. If it is the service's, no web page, and means that the folder or file is missing, "
    "extra 'not_found_pattern' must match it.",
)
"""HTTP 404 that does not mean a folder or file: it is not a JSON object, or does not match ``not_found_pattern``."""
REJECTED = Signal(exceptions.RequestRejectedError)
BAD_REQUEST = Signal(exceptions.BadRequestError)
REDIRECT = Signal(
    exceptions.BadRequestError,
    reason=_AT_ADDRESS,
    advice="Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL.",
)

# Responses with HTTP 2xx that are not a success.
NOT_A_RESPONSE = Signal(exceptions.InvalidResponseError, _AT_ADDRESS, exceptions.InvalidResponseError.default_advice)
"""The response cannot come from the service itself; it is a web page, for example."""
NOT_YET = Signal(exceptions.NotFoundError, reason="{seen}: the file is not ready yet")
WITHOUT_RESULT = Signal(exceptions.InvalidResponseError, "{seen}, but the response has no {missing} ({address})")
ERROR_WITH_ID = Signal(
    exceptions.OutcomeUnknownError,
    reason="{seen}, and the service reports an error beside the file's id",
    advice="If this response means success, extra 'success_when' must say so.",
)
STATED_ERROR = Signal(exceptions.ServiceError, reason="{seen}, but the service reports an error")

_OF_STATUS: dict[int, Signal] = {
    401: TOKEN_REFUSED,
    403: FORBIDDEN,
    408: IN_DOUBT,
    507: REJECTED,
    **dict.fromkeys((404, 410), MISSING),
    **dict.fromkeys((400, 405, 411, 413, 414, 415, 422), BAD_REQUEST),
    **dict.fromkeys((425, 429), LIMITED),  # RFC 8470 section 5.2, RFC 6585 section 4: the request had no effect
}
_OF_CLASS = {3: REDIRECT, 4: REJECTED}  # any other status is in doubt, even 101 and 999, which end no HTTP exchange


def error_of(signal: Signal, operation: Operation[Any]) -> type[CloudStoreError]:
    """Return the class of the error: an operation that must not be repeated is unknown if it may have had an effect."""
    if signal is TOKEN_REFUSED:
        return operation.error_if_refused
    is_unknown = signal.error.may_have_effect and not operation.may_be_repeated
    return exceptions.OutcomeUnknownError if is_unknown else signal.error


def of_status(status: int) -> Signal:
    """Return the signal of an HTTP status other than 2xx."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, IN_DOUBT)


def signal_of(reading: Reading, operation: Operation[Any]) -> Signal | None:
    """Return the signal of a response; None if it is a success.

    First, status and body decide, by the numbered rules in docs/operate/responses.md. Then the service's patterns may overrule
    an error, unless it leaves an upload in doubt.
    """
    signal = _of_2xx(reading, operation) if reading.is_2xx else _of_other_status(reading)
    if signal is None or error_of(signal, operation) is exceptions.OutcomeUnknownError:
        return signal
    return _overruled(signal, reading, operation)


def _overruled(signal: Signal, reading: Reading, operation: Operation[Any]) -> Signal:
    not_found = reading.settings.service.not_found_pattern if operation.subject_must_exist else None
    # A web page is not the service's, and HTTP 5xx leaves open what was done.
    is_searched = not reading.problem and reading.data is not None and not 500 <= reading.response.status <= 599
    if is_searched and reading.refuses_token:
        return TOKEN_REFUSED
    if is_searched and reading.matches(not_found):
        return MISSING
    if signal is MISSING and (not_found or not isinstance(reading.data, dict)):
        return NO_SUCH_PATH
    return signal


def _of_other_status(reading: Reading) -> Signal:
    response = reading.response
    # A web page with 503 is Varnish's, after a timeout: the call may have been carried out.
    if response.status == 503 and response.retry_after is not None and not reading.problem:
        return LIMITED
    return of_status(response.status)  # rule 1


def _of_2xx(reading: Reading, operation: Operation[Any]) -> Signal | None:
    if reading.problem:
        return NOT_A_RESPONSE
    lacks_result = bool(operation.must_find) and reading.found is None
    is_pending = reading.response.status == 202 or convention.is_pending(reading.data)
    if lacks_result and is_pending and operation.may_be_pending:  # rule 2
        return NOT_YET
    if _is_error(reading, operation):
        return _of_reported_error(reading, operation)
    return WITHOUT_RESULT if lacks_result else None  # rule 7, or a success


def _of_reported_error(reading: Reading, operation: Operation[Any]) -> Signal:
    if reading.found is not None and not operation.may_be_repeated:  # rule 3
        return ERROR_WITH_ID
    if any(map(convention.INTERNAL_ERROR_WORDS.search, reading.texts)):  # rule 4
        return IN_DOUBT
    return of_status(reading.stated_status) if reading.stated_status else STATED_ERROR  # rules 5 and 6


def _is_error(reading: Reading, operation: Operation[Any]) -> bool:
    """Whether a 2xx response reports an error, according to ``success_when`` or else to the convention."""
    condition = reading.settings.service.condition_of(operation.key)
    if condition and reading.response.body.strip() and not isinstance(reading.data, str):
        return not condition.holds(reading.data)
    return convention.reports_error(reading.data, has_result=reading.found is not None)
