"""Says in words of our own how a connection broke, because the libraries' words hold whole URLs with the token in them."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol.messages import FailureKind, TransportFailure


class MalformedResponse(http.client.HTTPException):
    """The bytes that came are not one response, or they can be read in two ways."""


# By name, because neither client is to load the library of the other; the first that is known of any cause counts.
_MESSAGES = {
    "gaierror": "host name not found",
    "ConnectionRefusedError": "connection refused",
    "RemoteDisconnected": "connection closed without an answer",
    "ServerDisconnectedError": "connection closed without an answer",
    "ConnectionResetError": "connection reset",
    "BrokenPipeError": "connection closed",
    "SSLError": "TLS failed",
    "TimeoutError": "timed out",
    "IncompleteRead": "the answer broke off",
    "ClientPayloadError": "the answer broke off",
    "ClientResponseError": "the answer is not valid HTTP",
    "HTTPException": "the answer is not valid HTTP",
}


_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


def failure_of(error: BaseException, *, sent: bool, limit: float) -> TransportFailure:
    """What an exception means. It may be any: what a library raises at an odd answer is not a closed set.

    :param error: what was raised while a request was under way.
    :param sent: whether a byte of the request may have left.
    :param limit: seconds that the request was given.
    """
    if not sent:
        return TransportFailure(FailureKind.NEVER_SENT, f"no connection to the service: {reason_of(error)}")
    if any(isinstance(cause, TimeoutError) for cause in _causes(error)):
        return TransportFailure(FailureKind.OUTCOME_UNKNOWN, f"no whole answer within {limit:g} s")
    return TransportFailure(FailureKind.OUTCOME_UNKNOWN, reason_of(error))


def reason_of(error: BaseException) -> str:
    """A few words on the innermost cause that is known, else the error's type; never its text.

    :param error: what the library raised.
    """
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            return f"TLS certificate not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return "TLS failed: what answers there does not speak TLS"
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    known = (message for name, message in _MESSAGES.items() if name in names)
    return next(known, f"connection broken ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
