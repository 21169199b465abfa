"""What passes between the protocol and the clients: a request, and its response or failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import pendulum
from pendulum import DateTime

MAX_BODY_BYTES = 1024 * 1024
"""A longer body is cut off and rejected: no response of this API needs more."""
CONNECT_TIMEOUT = 10.0
"""Maximum seconds to connect to an address; less if the request has less."""


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded HTTP request.

    ``url``, ``headers`` and ``body`` contain secrets, so the ``repr`` omits them.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response.

    :param status: the HTTP status.
    :param headers: the headers, their names in lower case; see :func:`headers_of`.
    :param body: the body, its content coding (gzip) not undone; more than :data:`MAX_BODY_BYTES` if it was cut off there.
    :param sent: when the request was sent (Unix time).
    :param received: when the response was complete (Unix time).
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    sent: float
    received: float

    @property
    def sent_at(self) -> DateTime:
        """When the request was sent (UTC)."""
        return pendulum.from_timestamp(self.sent)

    @property
    def received_at(self) -> DateTime:
        """When the response was complete (UTC)."""
        return pendulum.from_timestamp(self.received)


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of a :class:`Response`; the values of a repeated one are joined (RFC 9110 section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.lower(), value.strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


class FailureKind(Enum):
    """How a request ended without a complete response."""

    NEVER_SENT = "never sent"
    PROXY_REFUSED = "the proxy refused the credentials"
    OUTCOME_UNKNOWN = "outcome unknown"


class Cause(Enum):
    """Why no request could be sent, as far as that changes what to do."""

    UNREACHABLE = "host name not found, connection refused, or timed out"
    TLS = "TLS failed"
    PROXY = "the proxy is unreachable, or opens no tunnel"


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """A request without a complete response.

    :param kind: whether the request may have reached the service.
    :param reason: a short reason, such as ``connection refused``; never text of the service or a library: it may hold secrets.
    :param cause: why the request could not be sent, if it was not.
    """

    kind: FailureKind
    reason: str
    cause: Cause = Cause.UNREACHABLE
