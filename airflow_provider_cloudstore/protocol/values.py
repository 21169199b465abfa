"""What passes between the protocol and the clients: a request, its response, or the way in which it broke."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pendulum import DateTime

MAX_BODY_BYTES = 1024 * 1024
"""A longer body is cut off and refused: no answer of this API needs more."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, encoded: a client sends these bytes and adds nothing that matters.

    ``url``, ``headers`` and ``body`` hold the token, so they stay out of the ``repr``.
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
    :param body: the body as it came: at most :data:`MAX_BODY_BYTES` of it, its content coding (gzip) not undone.
    :param too_large: whether the body went on after that.
    :param sent_at: when the request was sent (UTC).
    :param received_at: when the answer was there (UTC).
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    sent_at: DateTime
    received_at: DateTime
    too_large: bool = False


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as a :class:`Response` has them: a repeated one's values are joined (RFC 9110 section 5.3).

    :param pairs: names and values, in the order in which they came.
    """
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


class Break(Enum):
    """How a request ended without a whole answer."""

    NEVER_SENT = "never sent"
    PROXY_REFUSED = "the proxy refused the credentials"
    OUTCOME_UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that got no whole answer.

    :param kind: whether the request can have reached the service.
    :param reason: a few words, of this package's own, such as ``connection refused``.
    """

    kind: Break
    reason: str
