"""Describes a broken connection without the library's own message, which holds the whole URL and the token in it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol.failures import connect_refused
from airflow_provider_cloudstore.protocol.messages import Cause, FailureKind, TransportFailure

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
    "Timeout": "timed out",
    "UnknownTransferEncoding": "an interim response (1xx), or an unknown transfer coding",
    "IncompleteRead": "the response ended early",
    "ClientPayloadError": "the response ended early",
    **dict.fromkeys(("ClientResponseError", "HTTPException", "InvalidHeader", "ProtocolError"), "the response is not valid HTTP"),
}
_CAUSES = {"gaierror": Cause.UNRESOLVED, "ConnectionRefusedError": Cause.REFUSED, "SSLError": Cause.TLS}
_TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})", re.ASCII)  # only http.client's text has the status
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH, and its codes for a certificate whose issuer is not trusted.
_CERTIFICATES = dict.fromkeys((62, 64), Cause.OTHER_HOST) | dict.fromkeys((2, 18, 19, 20, 21, 27), Cause.UNTRUSTED)


def transport_failure(error: BaseException, *, sent: bool, limit: float, through_proxy: bool) -> TransportFailure:
    """Describe any exception that a library raised during a request.

    :param sent: whether a byte of the request may have been sent.
    :param limit: the request's timeout in seconds.
    :param through_proxy: whether the connection goes through a proxy.
    """
    causes = list(causes_of(error))
    reason, cause = _describe(causes)
    if sent:
        reason = f"no complete response within {limit:g} s" if reason == "timed out" else reason
        return TransportFailure(FailureKind.OUTCOME_UNKNOWN, reason)
    if refused := next(filter(None, map(_TUNNEL_REFUSED.match, map(str, causes))), None):
        return connect_refused(int(refused[1]))
    if through_proxy and cause in (Cause.UNREACHABLE, Cause.UNRESOLVED, Cause.REFUSED):
        cause = Cause.PROXY
    return TransportFailure(FailureKind.NEVER_SENT, f"no connection to the service: {reason}", cause)


def _describe(causes: list[BaseException]) -> tuple[str, Cause]:
    """The innermost known cause, else the exception's type; never its message."""
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            reason = f"TLS certificate verification failed: {cause.verify_message.rstrip('.')}"
            return reason, _CERTIFICATES.get(cause.verify_code, Cause.TLS)
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return "TLS failed: the server does not speak TLS", Cause.NO_TLS
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    name = next(filter(names.__contains__, _REASONS), "")
    return _REASONS.get(name, f"connection broken ({type(causes[0]).__name__})"), _CAUSES.get(name, Cause.UNREACHABLE)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception of a library, and all that it names as its causes. Its context is none: a user may be handling another."""
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            pending += [cause.__cause__, getattr(cause, "reason", None), *cause.args]
