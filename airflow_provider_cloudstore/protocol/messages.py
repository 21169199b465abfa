"""What passes between the protocol and the clients: a request, its response, or the way in which it broke."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pendulum import DateTime

MAX_BODY_BYTES = 1024 * 1024
"""A longer body is cut off and refused: no answer of this API needs more."""
MAX_WIRE_BYTES = 8 * MAX_BODY_BYTES
"""Where reading ends whatever comes: interim responses, headers, and the framing of the smallest chunks included."""
MAX_HEAD_BYTES = 512 * 1024
"""Where reading ends if there is no end of the headers by then."""
MAX_INTERIM_RESPONSES = 64
"""How many responses may come before the final one."""
MAX_HEADER_LINES = 99
"""How many lines of headers a response may have: as many as the standard library reads."""
MAX_LINE_BYTES = 64 * 1024
"""Longest header line, and longest status line."""
CONNECT_TIMEOUT = 10.0
"""Seconds until there is a connection, where the whole request may not take even less: name resolution, all addresses, proxy
and TLS included."""


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


_FOLD = re.compile(r"\r?\n[ \t]+")  # where a header goes on in the next line (RFC 9112 section 5.2)


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as a :class:`Response` has them: a repeated one's values are joined (RFC 9110 section 5.3).

    :param pairs: names and values, in the order in which they came.
    """
    headers: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.lower(), _FOLD.sub(" ", value).strip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def is_interim(status: int) -> bool:
    """Whether a response only comes before the final one (RFC 9110 section 15.2). 101 does not: it ends HTTP.

    :param status: the HTTP status.
    """
    return 100 <= status < 200 and status != 101


def is_final(status: int) -> bool:
    """Whether a response can be the answer to a request (RFC 9110 section 15).

    :param status: the HTTP status.
    """
    return 200 <= status <= 999


def has_body(status: int) -> bool:
    """Whether a final response with this status can have a body, whatever its headers say (RFC 9112 section 6.3).

    :param status: the HTTP status.
    """
    return status not in (204, 304)


def is_unambiguous(status: int, headers: Mapping[str, str]) -> bool:
    """Whether all readers find the same end of the body (RFC 9112 sections 6.1 to 6.3, RFC 9110 section 8.6).

    :param status: the HTTP status.
    :param headers: see :func:`headers_of`.
    """
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if status == 204:
        return coding is None and length in (None, "0")  # it has no body, whatever it announces
    if coding is not None:
        return status != 304 and length is None and coding.lower() == "chunked"
    return length is None or re.fullmatch(r"\d{1,18}", length, re.ASCII) is not None


class FailureKind(Enum):
    """How a request ended without a whole answer."""

    NEVER_SENT = "never sent"
    PROXY_REFUSED = "the proxy refused the credentials"
    OUTCOME_UNKNOWN = "outcome unknown"


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """A request that got no whole answer.

    :param kind: whether the request can have reached the service.
    :param reason: a few words, of this package's own, such as ``connection refused``.
    """

    kind: FailureKind
    reason: str
