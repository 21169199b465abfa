"""Describes a broken connection without the library's own message, which contains the whole URL with its token."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol.http import TransportFailure

# Exceptions by name, because neither client may import the other's library. The first entry that matches any cause counts.
_REASONS = {
    "gaierror": "host name not found",
    "ConnectionRefusedError": "connection refused",
    **dict.fromkeys(("RemoteDisconnected", "ServerDisconnectedError"), "connection closed without a response"),
    **dict.fromkeys(("ConnectionResetError", "BrokenPipeError"), "connection reset"),
    **dict.fromkeys(("TimeoutError", "Timeout"), "timed out"),
    **dict.fromkeys(("IncompleteRead", "ClientPayloadError"), "the response ended early"),
    **dict.fromkeys(("ClientResponseError", "HTTPException", "InvalidHeader", "ProtocolError"), "the response is not valid HTTP"),
}


def failure_in_doubt(error: BaseException, limit: float) -> TransportFailure:
    """Describe an exception after which a request may have been sent.

    :param limit: the request's timeout in seconds.
    """
    reason = _reason(error)
    if reason == "timed out":
        reason = f"no complete response within {limit:g} s"
    return TransportFailure(sent=True, reason=reason)


def failure_unsent(error: BaseException) -> TransportFailure:
    """Describe an exception that kept a request from being sent."""
    return TransportFailure(sent=False, reason=f"no connection to the service: {_reason(error)}")


def tunnel_refused(status: int) -> TransportFailure:
    """Describe a proxy that refused to open a tunnel (RFC 9110 section 9.3.6): nothing was sent to the service."""
    return TransportFailure(sent=False, reason=f"no connection to the service: the proxy answered HTTP {status} to CONNECT")


def _reason(error: BaseException) -> str:
    causes = list(causes_of(error))
    if tls := [cause for cause in causes if isinstance(cause, ssl.SSLError)]:
        return _tls_reason(tls[-1])  # the last error is OpenSSL's own
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    known = (reason for name, reason in _REASONS.items() if name in names)
    return next(known, f"connection broken ({type(error).__name__})")


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate verification failed: {getattr(error, 'verify_message', '').rstrip('.')}"
    reason = getattr(error, "reason", None)  # a mock's error has none
    if reason == "WRONG_VERSION_NUMBER":
        return "the answer is not TLS: the port may speak plain http"
    return f"TLS failed ({reason or 'no details'})"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an exception and its causes, but not its ``__context__``: a user may have been handling another exception."""
    yield error
    for cause in (error.__cause__, getattr(error, "reason", None), *error.args):
        if isinstance(cause, BaseException):
            yield from causes_of(cause)
