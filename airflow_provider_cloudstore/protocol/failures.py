"""The second step of what an attempt means: from its signal and its operation to an error. The table in docs/operate/retries.md.

Nothing else decides this. Beyond the table: once an attempt may have succeeded, no later error but 401 denies it. An upload then
ends with ``OutcomeUnknownError``, and a later request that was never sent counts as ``TransientServiceError``.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.messages import FailureKind, TransportFailure
from airflow_provider_cloudstore.protocol.settings import PROXY_ADVICE
from airflow_provider_cloudstore.protocol.signals import Signal

ErrorType = type[exceptions.CloudStoreError]

_NOT_THE_API = f"Something other than the version 2 API responds there. Check {exceptions.BASE_URL_ADVICE}"
_NO_SUCH_PATH = (
    f"This 404 does not say that the folder or file is missing: it may be a front end's. Check {exceptions.BASE_URL_ADVICE} "
    "If it means that, extra 'not_found_pattern' must match it."
)
_REDIRECTED = "Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL."
_PROXY_REFUSED = "the proxy refused the credentials (HTTP 407), and forwarded nothing"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a signal means.

    :param once: the error of an operation that must not be repeated, if it is another one.
    :param says: the reason, where ``{}`` is what was seen.
    :param wait: what a wait does after it, if not what the error's class says.
    :param names_address: whether the reason names the connection and its address, where something may be wrong.
    """

    error: ErrorType
    once: ErrorType | None = None
    says: str = "{}"
    advice: str = ""
    wait: exceptions.Wait | None = None
    names_address: bool = False


MEANINGS: dict[Signal, Meaning] = {
    Signal.UNREACHABLE: Meaning(exceptions.ServiceUnreachableError),
    Signal.LIMITED: Meaning(exceptions.RateLimitError),
    Signal.IN_DOUBT: Meaning(exceptions.TransientServiceError, exceptions.OutcomeUnknownError),
    Signal.TOKEN_REFUSED: Meaning(
        exceptions.AuthenticationError, says="{}: the service refused the access token", names_address=True
    ),
    Signal.FORBIDDEN: Meaning(exceptions.PermissionDeniedError, names_address=True),
    Signal.MISSING: Meaning(exceptions.NotFoundError),
    Signal.MAYBE_MISSING: Meaning(exceptions.RequestRejectedError, advice=_NO_SUCH_PATH, wait="goes on", names_address=True),
    Signal.NO_SUCH_PATH: Meaning(exceptions.RequestRejectedError, advice=_NO_SUCH_PATH, names_address=True),
    Signal.REJECTED: Meaning(exceptions.RequestRejectedError),
    Signal.BAD_REQUEST: Meaning(exceptions.BadRequestError),
    Signal.WRONG_METHOD: Meaning(exceptions.BadRequestError, advice=_NOT_THE_API, names_address=True),
    Signal.REDIRECT: Meaning(exceptions.BadRequestError, says="{}, a redirect", advice=_REDIRECTED, names_address=True),
    Signal.PROXY_REFUSED: Meaning(exceptions.ConfigurationError, says=_PROXY_REFUSED, advice=PROXY_ADVICE, names_address=True),
    Signal.STATED_ERROR: Meaning(exceptions.ServiceError, says="{}, but the service reports an error"),
    Signal.OTHER_ERROR: Meaning(exceptions.ServiceError, says="{}, but the service reports an error", wait="tolerates"),
    Signal.NOT_A_RESPONSE: Meaning(exceptions.InvalidResponseError, exceptions.OutcomeUnknownError, names_address=True),
    Signal.NO_RESULT: Meaning(exceptions.InvalidResponseError, says="{}, but the response contains no token", names_address=True),
    Signal.NOT_YET: Meaning(exceptions.NotFoundError, says="{}: the file is not ready yet"),
    Signal.NO_FILE_ID: Meaning(
        exceptions.TransientServiceError,
        exceptions.OutcomeUnknownError,
        says="{}, but the response has no file id where extra 'file_id_path' leads",
    ),
}

_ADVICE = {
    FailureKind.UNREACHABLE: (
        "Check the port and the spelling of {host}, that the service is running there, and that this machine can reach it (DNS, "
        "firewall, VPN, proxy)."
    ),
    FailureKind.TLS: (
        "Check the port and the certificate of {host}: if it speaks plain http there, the URL must begin with http://; for a "
        "private certificate authority, set extra 'verify' to the path of its bundle."
    ),
    FailureKind.PROXY: (
        "Check the proxy (extra 'proxy', or HTTPS_PROXY, HTTP_PROXY and NO_PROXY in the environment), and that it may connect to "
        "{host}."
    ),
    FailureKind.PROXY_REFUSED: PROXY_ADVICE,
}


def error_of(signal: Signal, *, idempotent: bool, opted_in: bool = False, in_doubt: bool = False) -> ErrorType:
    """The error that a signal means.

    :param opted_in: whether the caller allows resending it although it may have arrived.
    :param in_doubt: whether an earlier attempt may have had an effect.
    """
    meaning = MEANINGS[signal]
    kind = meaning.error
    if meaning.once and not idempotent:
        kind = exceptions.TransientServiceError if opted_in else meaning.once
    if not in_doubt or kind.may_have_effect or signal is Signal.TOKEN_REFUSED:
        return kind
    if kind.retried and not (idempotent and kind.sent):
        return exceptions.TransientServiceError
    return kind if idempotent else exceptions.OutcomeUnknownError


def advice_on(failure: TransportFailure, host: str) -> str:
    """What to do about a request that was never sent; ``host`` is what could not be reached, in words."""
    return _ADVICE[failure.kind].format(host=host)


def connect_refused(status: int) -> TransportFailure:
    """What a proxy's refusal to open a tunnel means (RFC 9110 section 9.3.6): nothing was sent to the service."""
    if status == 407:
        return TransportFailure(FailureKind.PROXY_REFUSED, _PROXY_REFUSED)
    reason = f"no connection to the service: the proxy answered HTTP {status} to CONNECT"
    return TransportFailure(FailureKind.PROXY, reason)
