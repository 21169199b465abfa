"""Describes a broken connection without the library's own message, which holds the whole URL and the token in it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from airflow_provider_cloudstore.protocol import meanings
from airflow_provider_cloudstore.protocol.messages import TransportFailure, connect_refused

# By name, because neither client may import the other's library. The first one that matches any cause counts.
_REASONS = {
    "gaierror": "host name not found",
    "ConnectionRefusedError": "connection refused",
    **dict.fromkeys(("RemoteDisconnected", "ServerDisconnectedError"), "connection closed without a response"),
    **dict.fromkeys(("ConnectionResetError", "BrokenPipeError"), "connection reset"),
    **dict.fromkeys(("TimeoutError", "Timeout"), "timed out"),
    **dict.fromkeys(("IncompleteRead", "ClientPayloadError"), "the response ended early"),
    **dict.fromkeys(("ClientResponseError", "HTTPException", "InvalidHeader", "ProtocolError"), "the response is not valid HTTP"),
}
_TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (\d{3})", re.ASCII)  # only http.client's text has the status


def transport_failure(error: BaseException, *, sent: bool, limit: float, through_proxy: bool) -> TransportFailure:
    """Describe any exception that a library raised during a request.

    :param sent: whether a byte of the request may have been sent.
    :param limit: the request's timeout in seconds.
    """
    causes = list(causes_of(error))
    tls = [cause for cause in causes if isinstance(cause, ssl.SSLError)]  # the last one is OpenSSL's own
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    known = (reason for name, reason in _REASONS.items() if name in names)
    reason = _tls_failure(tls[-1]) if tls else next(known, f"connection broken ({type(error).__name__})")
    if sent:
        reason = f"no complete response within {limit:g} s" if reason == "timed out" else reason
        return TransportFailure(meanings.IN_DOUBT, reason)
    if refused := next(filter(None, map(_TUNNEL_REFUSED.match, map(str, causes))), None):
        return connect_refused(int(refused[1]))
    meaning = meanings.TLS_FAILED if tls else meanings.PROXY_FAILED if through_proxy else meanings.UNREACHABLE
    return TransportFailure(meaning, f"no connection to the service: {reason}")


def _tls_failure(error: ssl.SSLError) -> str:
    """What OpenSSL says, in words of its own."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate verification failed: {getattr(error, 'verify_message', '').rstrip('.')}"
    return f"TLS failed ({getattr(error, 'reason', None) or 'no details'})"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception of a library, and all that it names as its causes. Its context is none: a user may be handling another."""
    yield error
    for cause in (error.__cause__, getattr(error, "reason", None), *error.args):
        if isinstance(cause, BaseException):
            yield from causes_of(cause)
