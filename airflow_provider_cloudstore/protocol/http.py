"""The values that pass between the protocol and the clients: a request, and its response or failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from airflow_provider_cloudstore import __version__

COMMON_HEADERS = {"User-Agent": f"airflow-provider-cloudstore/{__version__}", "Accept-Encoding": "identity"}
"""The headers of every request, also of a download."""
MAX_BODY_BYTES = 1024 * 1024
"""The maximum length of a body. A longer body is cut off and rejected, because no response of this API needs more."""
CONNECT_TIMEOUT = 10.0
"""Maximum seconds to connect to an address; less if the request has less time."""
_MAX_RETRY_AFTER = 86_400.0  # seconds; a broken header must not delay a task for years


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded HTTP request. Its ``repr`` omits the fields that may contain a secret."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response.

    :param headers: the headers, with names in lower case.
    :param body: the body; longer than :data:`MAX_BODY_BYTES` if it was cut off there.
    :param sent_at: when the request was sent (Unix time).
    :param received_at: when the response was complete (Unix time).
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    sent_at: float
    received_at: float

    @property
    def is_interim(self) -> bool:
        """Whether another response follows (RFC 9110 section 15.2), which would be taken for the response to the next request."""
        return self.status < 200

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait, at most a day, from whole seconds or a future HTTP date (RFC 9110 section 10.2.3)."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdecimal():
            return min(float(value), _MAX_RETRY_AFTER)
        if not value.endswith(" GMT"):
            return None
        try:
            seconds = parsedate_to_datetime(value).timestamp() - self.received_at
        except (ValueError, TypeError, OverflowError):  # not a date, or out of range
            return None
        return min(seconds, _MAX_RETRY_AFTER) if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """A request without a complete response.

    :param sent: whether the request may have been sent.
    :param reason: a short reason, such as ``connection refused``; never text of the service or a library, which may hold secrets.
    """

    sent: bool
    reason: str
