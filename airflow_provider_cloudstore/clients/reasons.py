"""Says in words of our own how a connection broke, because the libraries' words hold whole URLs with the token in them."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator

_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "host name not found"),
    (ConnectionRefusedError, "connection refused"),
    (ConnectionResetError, "connection reset"),
    (BrokenPipeError, "connection closed"),
    (ssl.SSLError, "TLS failed"),
    (TimeoutError, "timed out"),
    (http.client.IncompleteRead, "the answer broke off"),
)


def reason_of(error: BaseException) -> str:
    """A few words on the innermost cause that is known, else the error's type; never its text.

    :param error: what the library raised.
    """
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_message"):
            return f"TLS certificate not accepted: {cause.verify_message}"
    for known, words in _WORDS:
        if any(isinstance(cause, known) for cause in causes):
            return words
    return f"connection broken ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
