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

_NOT_THE_API = "Something other than the version 2 API responds there. Check the connection's host (base URL)."
_REDIRECTED = "Redirects are not followed, to keep the token from other hosts. Set the connection's host to the final base URL."
_PROXY_REFUSED = "the proxy refused the credentials (HTTP 407), and forwarded nothing"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a signal means.

    :param once: the error of an operation that must not be repeated, if it is another one.
    :param says: the reason, where ``{}`` is what was seen.
    :param inconclusive: whether it says nothing about the subject, so that a wait tolerates a few of them.
    :param elsewhere: whether the API is not at the connection's address.
    """

    error: ErrorType
    once: ErrorType | None = None
    says: str = "{}"
    advice: str = ""
    inconclusive: bool = False
    elsewhere: bool = False


MEANINGS: dict[Signal, Meaning] = {
    Signal.UNREACHABLE: Meaning(exceptions.ServiceUnreachableError),
    Signal.LIMITED: Meaning(exceptions.RateLimitError),
    Signal.IN_DOUBT: Meaning(exceptions.TransientServiceError, exceptions.OutcomeUnknownError),
    Signal.TOKEN_REFUSED: Meaning(exceptions.AuthenticationError, says="{}: the service refused the access token"),
    Signal.FORBIDDEN: Meaning(exceptions.PermissionDeniedError, inconclusive=True),
    Signal.MISSING: Meaning(exceptions.NotFoundError),
    Signal.NO_SUCH_PATH: Meaning(
        exceptions.NotFoundError, advice=exceptions.NotFoundError.hint, inconclusive=True, elsewhere=True
    ),
    Signal.REJECTED: Meaning(exceptions.RequestRejectedError, inconclusive=True),
    Signal.BAD_SUBJECT: Meaning(exceptions.BadRequestError),
    Signal.BAD_REQUEST: Meaning(exceptions.BadRequestError, inconclusive=True),
    Signal.WRONG_METHOD: Meaning(exceptions.BadRequestError, advice=_NOT_THE_API, inconclusive=True, elsewhere=True),
    Signal.REDIRECT: Meaning(
        exceptions.BadRequestError, says="{}, a redirect", advice=_REDIRECTED, inconclusive=True, elsewhere=True
    ),
    Signal.PROXY_REFUSED: Meaning(exceptions.ConfigurationError, says=_PROXY_REFUSED, advice=PROXY_ADVICE),
    Signal.STATED_ERROR: Meaning(exceptions.ServiceError),
    Signal.OTHER_ERROR: Meaning(exceptions.ServiceError, inconclusive=True),
    Signal.NOT_A_RESPONSE: Meaning(exceptions.InvalidResponseError, exceptions.OutcomeUnknownError, inconclusive=True),
    Signal.WEB_PAGE: Meaning(exceptions.InvalidResponseError, exceptions.OutcomeUnknownError, inconclusive=True, elsewhere=True),
    Signal.NO_RESULT: Meaning(
        exceptions.InvalidResponseError, says="{}, but the response contains no download token", inconclusive=True
    ),
    Signal.NOT_YET: Meaning(exceptions.NotFoundError, says="{}: the file is not ready yet"),
    Signal.NO_EVIDENCE: Meaning(
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


def may_mean_missing(error: exceptions.CloudStoreError) -> bool:
    """Whether the service itself said something of the id or URL that ``not_found_pattern`` could match."""
    is_rejected = isinstance(error, exceptions.BadRequestError) and not error.inconclusive
    return is_rejected or isinstance(error, exceptions.ServiceError)
