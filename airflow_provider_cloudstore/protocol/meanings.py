"""Decides what an attempt means.

First the possible meanings, as data: the table in docs/operate/retries.md. Below it, :func:`meaning_of` finds the meaning of a
response, by the rules in docs/operate/responses.md; the clients find that of a request without a response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.convention import INTERNAL_ERROR
from airflow_provider_cloudstore.protocol.reading import Reading

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """A row of the table.

    :param error: the class of the error, which declares its consequences and what to do about it.
    :param says: the reason, in which ``{seen}`` stands for what was seen. It names the connection and its ``{address}`` if these
        may be wrong.
    :param advice: what to do, if the class has other meanings.
    """

    error: type[CloudStoreError]
    says: str = "{seen}"
    advice: str = ""

    def error_class(self, *, may_be_repeated: bool, in_doubt: bool) -> type[CloudStoreError]:
        """Return the class of the error of a call; ``in_doubt`` says whether an earlier attempt may have had an effect."""
        if self.error.may_have_effect and not may_be_repeated:
            return exceptions.OutcomeUnknownError
        if in_doubt and not self.error.sent:  # only the last attempt was not sent
            return exceptions.TransientServiceError
        return self.error


_AT_ADDRESS = "{seen} ({address})"

# Requests without a complete response.
UNREACHABLE = Meaning(exceptions.ServiceUnreachableError, _AT_ADDRESS)
IN_DOUBT = Meaning(exceptions.TransientServiceError)
"""The request may have been carried out."""

# Errors of the service.
LIMITED = Meaning(exceptions.RateLimitError)
TOKEN_REFUSED = Meaning(exceptions.AuthenticationError, "{seen}: the service refused the access token ({address})")
KEYS_REFUSED = Meaning(
    exceptions.ConfigurationError,  # permanent, because an account may lock itself
    "{seen}: the service gave no access token for the connection's login and password ({address})",
    "Set the login to the first key of the account, and the password to the second.",
)
FORBIDDEN = Meaning(exceptions.PermissionDeniedError, _AT_ADDRESS)
MISSING = Meaning(exceptions.NotFoundError)
"""The service says that the subject does not exist."""
NO_SUCH_PATH = Meaning(
    exceptions.RequestRejectedError,
    _AT_ADDRESS,
    "This does not say that the folder or file is missing: it may be a front end's. Check that the connection's host is the "
    "base URL, and that extra 'api_path' is the path of the calls below that URL. If the response does mean that, extra "
    "'not_found_pattern' must match it.",
)
"""HTTP 404 that does not mean a folder or file: it is not a JSON object, or does not match ``not_found_pattern``."""
REJECTED = Meaning(exceptions.RequestRejectedError)
BAD_REQUEST = Meaning(exceptions.BadRequestError)
REDIRECT = Meaning(
    exceptions.BadRequestError,
    "{seen}, a redirect ({address})",
    "Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL.",
)

# Responses with HTTP 2xx that are not a success.
STATED_ERROR = Meaning(exceptions.ServiceError, "{seen}, but the service reports an error")
_CHECK_HOST = "Check that the connection's host is the API's base URL, and that no proxy or login page responds instead."
NOT_A_RESPONSE = Meaning(exceptions.InvalidResponseError, _AT_ADDRESS, _CHECK_HOST)
"""The response cannot come from the service itself; it is a web page, for example."""
NO_TOKEN_FOUND = Meaning(exceptions.InvalidResponseError, "{seen}, but the response contains no token ({address})", _CHECK_HOST)
NOT_YET = Meaning(exceptions.NotFoundError, "{seen}: the file is not ready yet")
ERROR_WITH_ID = Meaning(
    exceptions.OutcomeUnknownError,
    "{seen}, and the service reports an error beside the file's id",
    "If this response means success, extra 'success_when' must say so.",
)
"""The response to an upload contains a file's id, but also reports an error."""
NO_FILE_ID = Meaning(
    exceptions.OutcomeUnknownError,
    "{seen}, but the response has no file id at the path in extra 'file_id_path'",
    "If the file arrived, correct that path.",
)

_OF_STATUS: dict[int, Meaning] = {
    401: TOKEN_REFUSED,
    403: FORBIDDEN,
    408: IN_DOUBT,
    **dict.fromkeys((404, 410), MISSING),
    **dict.fromkeys((400, 405, 411, 413, 414, 415, 422), BAD_REQUEST),
    **dict.fromkeys((425, 429), LIMITED),  # RFC 8470 section 5.2, RFC 6585 section 4: the request had no effect
}
_OF_CLASS = {3: REDIRECT, 4: REJECTED}  # any other status is in doubt, even 101 and 999, which end no HTTP exchange


def of_status(status: int) -> Meaning:
    """Return what an HTTP status other than 2xx means by itself."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, IN_DOUBT)


def meaning_of(reading: Reading, operation: Operation[Any], *, has_result: bool) -> Meaning | None:
    """Return what a response means, by the rules of docs/operate/responses.md in their order; None if it is a success.

    :param has_result: whether the response contains what the operation asked for: a file's id, or a download token.
    """
    service = reading.settings.service
    not_found = service.not_found_pattern if operation.subject_must_exist else None
    if reading.is_2xx and not reading.problem and not reading.reports_error(service.condition_of(operation.key), has_result):
        if has_result or operation.without_result is None:
            return None
        meaning = operation.without_result
    else:
        meaning = _of_error(reading, not_found)
    if reading.is_pending and operation.subject_must_exist and operation.without_result and not has_result:
        meaning = NOT_YET
    if has_result and operation.error_with_result:
        return operation.error_with_result
    if meaning.error.may_have_effect and not operation.may_be_repeated:  # whatever else the response says
        return meaning
    if reading.matches(service.token_refused_pattern):
        meaning = TOKEN_REFUSED
    elif reading.matches(not_found):
        meaning = MISSING
    return operation.token_refused if meaning is TOKEN_REFUSED else meaning


def _of_error(reading: Reading, not_found: re.Pattern[str] | None) -> Meaning:
    """Return what an error means that no pattern matches: by its HTTP status, or by what a 2xx says."""
    response, stated = reading.response, reading.stated_status
    if reading.is_2xx and reading.problem:
        return NOT_A_RESPONSE
    if reading.is_2xx and not stated:
        return IN_DOUBT if INTERNAL_ERROR.search(reading.words) else STATED_ERROR
    if response.status == 503 and response.retry_after is not None:
        # Varnish sends a page with this status after a timeout, when the call may have been carried out.
        return IN_DOUBT if reading.problem else LIMITED
    meaning = of_status(stated or response.status)
    return NO_SUCH_PATH if meaning is MISSING and (not_found or not isinstance(reading.data, dict)) else meaning
