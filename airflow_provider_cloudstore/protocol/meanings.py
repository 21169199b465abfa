"""Decides what an attempt means; nothing else decides that.

First the possible meanings, as data: the table in docs/operate/retries.md. Below it, :func:`meaning_of` finds the meaning of a
response, by the rules in docs/operate/responses.md; the clients find that of a request without a response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.services import INTERNAL_ERROR

if TYPE_CHECKING:
    from airflow_provider_cloudstore.protocol.operations import Operation
    from airflow_provider_cloudstore.protocol.reading import Reading
    from airflow_provider_cloudstore.protocol.services import Service
    from airflow_provider_cloudstore.protocol.settings import Settings

PROXY_ADVICE = (
    "Set extra 'proxy' of the connection to http://user:password@proxy.example.com:3128, with user and password percent-encoded."
)
_NO_SUCH_PATH = (
    f"This 404 does not say that the folder or file is missing: it may be a front end's. Check {exceptions.BASE_URL_ADVICE} "
    "If the response does mean that, extra 'not_found_pattern' must match it."
)
_REDIRECTED = "Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL."


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """A row of the table.

    :param error: the class of the error.
    :param leaves_open: whether the call may have been carried out, so that a call that must not be repeated ends as unknown.
    :param says: the reason, in which ``{}`` stands for what was seen.
    :param advice: what to do, if the advice of the error's class does not fit.
    :param names_address: whether the reason names the connection and its address, because they may be wrong.
    """

    error: type[exceptions.CloudStoreError]
    leaves_open: bool = False
    says: str = "{}"
    advice: str = ""
    names_address: bool = False

    def error_for(self, operation: Operation[Any], *, in_doubt: bool) -> type[exceptions.CloudStoreError]:
        """Return the class of the error with which a call ends.

        :param in_doubt: whether an earlier attempt may have had an effect, which the error must not deny.
        """
        if operation.idempotent:
            return exceptions.TransientServiceError if in_doubt and not self.error.sent else self.error
        denies_effect = not self.error.may_have_effect and self.error is not exceptions.AuthenticationError
        if not (self.leaves_open or (in_doubt and denies_effect)):
            return self.error
        is_resent = operation.resends_in_doubt and (self.leaves_open or self.error.retried)
        return exceptions.TransientServiceError if is_resent else exceptions.OutcomeUnknownError


# Requests without a complete response.
UNREACHABLE = Meaning(
    exceptions.ServiceUnreachableError,
    advice="Check the port and the spelling of the host, that the service is running there, and that this machine can reach it "
    "(DNS, firewall, VPN, proxy).",
    names_address=True,
)
TLS_FAILED = Meaning(
    exceptions.ServiceUnreachableError,
    advice="Check the port and the certificate of the host: if it speaks plain http there, the URL must begin with http://; for "
    "a private certificate authority, set extra 'verify' to the path of its bundle.",
    names_address=True,
)
PROXY_FAILED = Meaning(
    exceptions.ServiceUnreachableError,
    advice="Check the proxy (extra 'proxy', or HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment), and that it may connect "
    "to the host.",
    names_address=True,
)
PROXY_REFUSED = Meaning(
    exceptions.ConfigurationError,
    says="the proxy refused the credentials (HTTP 407), and forwarded nothing",
    advice=PROXY_ADVICE,
    names_address=True,
)
IN_DOUBT = Meaning(exceptions.TransientServiceError, leaves_open=True)
"""The request may have been carried out."""
ERROR_WITH_ID = Meaning(
    exceptions.TransientServiceError,
    leaves_open=True,
    says="{}, and the service reports an error beside the file's id",
    advice="If this response means success, extra 'success_when' must say so.",
)
"""The response to an upload contains a file's id, but also reports an error."""

# Errors of the service.
LIMITED = Meaning(exceptions.RateLimitError)
TOKEN_REFUSED = Meaning(exceptions.AuthenticationError, says="{}: the service refused the access token", names_address=True)
TOKEN_ENDED = Meaning(
    exceptions.AuthenticationError,
    says=TOKEN_REFUSED.says,
    advice="Each token ends the account's earlier tokens, so another task has probably asked for a token. Run fewer of these "
    "tasks side by side, for example with an Airflow pool.",
    names_address=True,
)
"""The service refused a token from ``POST /authorize``."""
FORBIDDEN = Meaning(exceptions.PermissionDeniedError, names_address=True)
MISSING = Meaning(exceptions.NotFoundError)
"""The service says that the subject does not exist."""
NO_SUCH_PATH = Meaning(exceptions.RequestRejectedError, advice=_NO_SUCH_PATH, names_address=True)
"""HTTP 404 that may be a front end's: its body is not a JSON object, or does not match ``not_found_pattern``."""
REJECTED = Meaning(exceptions.RequestRejectedError)
BAD_REQUEST = Meaning(exceptions.BadRequestError)
REDIRECT = Meaning(exceptions.BadRequestError, says="{}, a redirect", advice=_REDIRECTED, names_address=True)

# Responses with HTTP 2xx that are not a success.
STATED_ERROR = Meaning(exceptions.ServiceError, says="{}, but the service reports an error")
NOT_A_RESPONSE = Meaning(exceptions.InvalidResponseError, leaves_open=True, names_address=True)
"""The response cannot come from the service itself; it is a web page, for example."""
LINK_WITHOUT_TOKEN = Meaning(exceptions.InvalidResponseError, says="{}, but the response contains no token", names_address=True)
NO_FILE_ID = Meaning(
    exceptions.TransientServiceError,
    leaves_open=True,
    says="{}, but the response has no file id at the path in extra 'file_id_path'",
    advice="If the file arrived, correct that path.",
)
NOT_YET = Meaning(exceptions.NotFoundError, says="{}: the file is not ready yet")

_OF_STATUS: dict[int, Meaning] = {
    401: TOKEN_REFUSED,
    403: FORBIDDEN,
    407: PROXY_REFUSED,
    408: IN_DOUBT,
    **dict.fromkeys((404, 410), MISSING),
    **dict.fromkeys((400, 405, 411, 413, 414, 415, 422), BAD_REQUEST),
    **dict.fromkeys((425, 429), LIMITED),  # RFC 8470 section 5.2, RFC 6585 section 4: the request had no effect
}
_OUTCOME_OPEN = (408, *range(500, 600))
_OF_CLASS = {3: REDIRECT, 4: REJECTED}  # any other status is in doubt, even 101 and 999, which end no HTTP exchange


def of_status(status: int) -> Meaning:
    """Return what an HTTP status other than 2xx means by itself."""
    return _OF_STATUS.get(status) or _OF_CLASS.get(status // 100, IN_DOUBT)


def meaning_of(reading: Reading, operation: Operation[Any], settings: Settings, *, has_result: bool) -> Meaning | None:
    """Return what a response means; None if it is a success.

    :param has_result: whether the response contains what the operation asked for: a file's id, or a download token.
    """
    meaning = _meaning_of(reading, operation, settings.service, has_result=has_result)
    return TOKEN_ENDED if meaning is TOKEN_REFUSED and settings.keys else meaning


def _meaning_of(reading: Reading, operation: Operation[Any], service: Service, *, has_result: bool) -> Meaning | None:
    if reading.is_2xx and reading.problem:
        return NOT_A_RESPONSE
    condition = service.condition_of(operation.key)
    if not reading.is_2xx or reading.reports_error(condition, has_result=has_result):
        is_upload_with_id = has_result and not operation.idempotent
        return ERROR_WITH_ID if is_upload_with_id else _meaning_of_error(reading, operation, service)
    if has_result or not operation.needs_result:
        return None
    if not operation.idempotent:
        return NO_FILE_ID
    return _declared_meaning(reading, operation, service) or (NOT_YET if reading.is_pending else LINK_WITHOUT_TOKEN)


def _meaning_of_error(reading: Reading, operation: Operation[Any], service: Service) -> Meaning:
    """Return what an error means. What the connection declares comes before what a status says.

    But a call that must not be repeated is in doubt if the status says so, whatever else the response says.
    """
    meaning = _meaning_of_status(reading, operation, service)
    if meaning is IN_DOUBT and not operation.idempotent:
        return meaning
    if declared := _declared_meaning(reading, operation, service):
        return declared
    is_clear = isinstance(reading.data, dict) and not (operation.has_subject and service.not_found_pattern)
    return NO_SUCH_PATH if meaning is MISSING and not is_clear else meaning


def _meaning_of_status(reading: Reading, operation: Operation[Any], service: Service) -> Meaning:
    """Return what an error means by its HTTP status, or by the status that the body of a 2xx states."""
    status = reading.stated_status if reading.is_2xx else reading.response.status
    if status is None:
        return IN_DOUBT if INTERNAL_ERROR.search(reading.message(service)) else STATED_ERROR
    if reading.response.status == 503 and reading.response.retry_after is not None:
        # Varnish sends a page with this status after a timeout, when the upload may have been queued.
        return IN_DOUBT if reading.problem and not operation.idempotent else LIMITED
    return of_status(status)


def _declared_meaning(reading: Reading, operation: Operation[Any], service: Service) -> Meaning | None:
    """Return the meaning whose pattern matches the service's message, or the whole body; None if no pattern does.

    Web pages are not searched, nor is a response whose status leaves it open whether the call was carried out.
    """
    if reading.problem or reading.data is None or reading.response.status in _OUTCOME_OPEN:
        return None
    if reading.matches(service.token_refused_pattern, service):
        return TOKEN_REFUSED
    not_found = service.not_found_pattern if operation.has_subject else None
    return MISSING if not_found and reading.matches(not_found, service) else None
