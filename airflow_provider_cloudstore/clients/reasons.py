"""Describes a broken connection without the library's own message, which holds the whole URL and the token in it."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol.messages import FailureKind, TransportFailure


class MalformedResponse(http.client.HTTPException):
    """The bytes received are not one response, or are ambiguous."""


# By name, because neither client may import the other's library. The first one that matches any cause counts.
_REASONS = {
    "gaierror": "host name not found",
    "ConnectionRefusedError": "connection refused",
    "RemoteDisconnected": "connection closed without a response",
    "ServerDisconnectedError": "connection closed without a response",
    "ConnectionResetError": "connection reset",
    "BrokenPipeError": "connection closed",
    "SSLError": "TLS failed",
    "TimeoutError": "timed out",
    "IncompleteRead": "the response ended early",
    "ClientPayloadError": "the response ended early",
    "ClientResponseError": "the response is not valid HTTP",
    "HTTPException": "the response is not valid HTTP",
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


def transport_failure(error: BaseException, *, sent: bool, limit: float) -> TransportFailure:
    """Describe any exception that a library raised during a request.

    :param sent: whether a byte of the request may have been sent.
    :param limit: the request's timeout in seconds.
    """
    if not sent:
        return TransportFailure(FailureKind.NEVER_SENT, f"no connection to the service: {reason_for(error)}")
    timed_out = any(isinstance(cause, TimeoutError) for cause in _causes(error))
    reason = f"no complete response within {limit:g} s" if timed_out else reason_for(error)
    return TransportFailure(FailureKind.OUTCOME_UNKNOWN, reason)


def reason_for(error: BaseException) -> str:
    """The reason for the innermost known cause, else the exception's type; never its message."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            return f"TLS certificate verification failed: {cause.verify_message.rstrip('.')}"
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return "TLS failed: the server does not speak TLS; check the host's scheme and port"
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    known = (reason for name, reason in _REASONS.items() if name in names)
    return next(known, f"connection broken ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            pending += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
