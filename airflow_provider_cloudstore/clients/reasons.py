"""Describes a broken connection without the library's own message, which holds the whole URL and the token in it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol.messages import Cause, FailureKind, TransportFailure

# By name, because neither client may import the other's library. The first one that matches any cause counts.
_REASONS = {
    "gaierror": ("host name not found", Cause.UNRESOLVED),
    "ConnectionRefusedError": ("connection refused", Cause.REFUSED),
    "RemoteDisconnected": ("connection closed without a response", Cause.UNREACHABLE),
    "ServerDisconnectedError": ("connection closed without a response", Cause.UNREACHABLE),
    "ConnectionResetError": ("connection reset", Cause.UNREACHABLE),
    "BrokenPipeError": ("connection closed", Cause.UNREACHABLE),
    "SSLError": ("TLS failed", Cause.TLS),
    "TimeoutError": ("timed out", Cause.UNREACHABLE),
    "IncompleteResponse": ("the response ended early", Cause.UNREACHABLE),
    "IncompleteRead": ("the response ended early", Cause.UNREACHABLE),
    "ClientPayloadError": ("the response ended early", Cause.UNREACHABLE),
    "MalformedResponse": ("the response is not valid HTTP", Cause.UNREACHABLE),
    "ClientResponseError": ("the response is not valid HTTP", Cause.UNREACHABLE),
    "HTTPException": ("the response is not valid HTTP", Cause.UNREACHABLE),
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH, and its codes for a certificate whose issuer is not trusted.
_CERTIFICATES = dict.fromkeys((62, 64), Cause.OTHER_HOST) | dict.fromkeys((2, 18, 19, 20, 21, 27), Cause.UNTRUSTED)


def transport_failure(error: BaseException, *, sent: bool, limit: float, through_proxy: bool) -> TransportFailure:
    """Describe any exception that a library raised during a request.

    :param sent: whether a byte of the request may have been sent.
    :param limit: the request's timeout in seconds.
    :param through_proxy: whether the connection goes through a proxy.
    """
    reason, cause = _describe(error)
    if not sent:
        if through_proxy and cause in (Cause.UNREACHABLE, Cause.UNRESOLVED, Cause.REFUSED):
            cause = Cause.PROXY
        return TransportFailure(FailureKind.NEVER_SENT, f"no connection to the service: {reason}", cause)
    timed_out = any(isinstance(cause, TimeoutError) for cause in _causes(error))
    return TransportFailure(FailureKind.OUTCOME_UNKNOWN, f"no complete response within {limit:g} s" if timed_out else reason)


def _describe(error: BaseException) -> tuple[str, Cause]:
    """The innermost known cause, else the exception's type; never its message."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            reason = f"TLS certificate verification failed: {cause.verify_message.rstrip('.')}"
            return reason, _CERTIFICATES.get(cause.verify_code, Cause.TLS)
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return "TLS failed: the server does not speak TLS", Cause.NO_TLS
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    known = (described for name, described in _REASONS.items() if name in names)
    return next(known, (f"connection broken ({type(error).__name__})", Cause.UNREACHABLE))


def _causes(error: BaseException) -> Iterator[BaseException]:
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            pending += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
