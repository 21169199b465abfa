"""Splits a URL with Python's own parser, and refuses a URL that other parsers may split differently.

An ambiguous URL is never sent, and never receives a token.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

_HOST = re.compile(r"[\w~-]{1,63}(\.[\w~-]{1,63})*\.?|.*:.*")  # a name or an IPv4 address, or an IPv6 address


class AmbiguousUrlError(ValueError):
    """A URL is not absolute, or parsers split it differently. The message does not repeat any part of the URL."""


@functools.lru_cache  # a source URL is split for validation and for redaction
def split_url(url: str) -> SplitResult:
    """Return the parts of an absolute URL (RFC 3986 section 3).

    :raises AmbiguousUrlError: if the URL is not absolute, or is ambiguous; the message says what to write instead.
    """
    if "\\" in url:
        raise AmbiguousUrlError("contains a backslash: write it as %5C")
    if " " in url or not url.isprintable():
        raise AmbiguousUrlError("contains a space or an invisible character: percent-encode it")
    if "://" not in url:
        raise AmbiguousUrlError("has no scheme with '://' after it, such as https://")
    try:
        parts = urlsplit(url)
        is_valid = bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:  # from urlsplit, for a port, brackets, or characters that NFKC turns into delimiters
        is_valid = False
    if not is_valid:
        raise AmbiguousUrlError("has no valid host, or a port that is not a number from 1 to 65535")
    if _may_hold_user_info_in_path(parts):
        raise AmbiguousUrlError("has an '@' after what may be user info: write a '/' or '@' in it as %2F or %40")
    return parts


def _may_hold_user_info_in_path(parts: SplitResult) -> bool:
    """Whether user info may hold a raw ``/`` or ``@``, so that some parsers take a part of it for the host or the path."""
    user_info, _, address = parts.netloc.rpartition("@")
    if "@" not in user_info + parts.path:
        return False
    host = parts.hostname or ""
    is_plain_host = ":" not in address or "." in host or ":" in host or host == "localhost"
    return bool(user_info) or not is_plain_host


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) is this machine (RFC 6761 section 6.3, RFC 1122 section 3.2.1.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def url_problem(url: str, *, allow_http: bool = False) -> str:
    """Return the reason why nothing must be downloaded from a URL, or an empty string. It repeats only the URL's scheme."""
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return f"has the scheme '{parts.scheme}'"
    if parts.username is not None:
        return "contains a user name or password"
    allowed = parts.scheme == "https" or allow_http or is_loopback(parts.hostname or "")
    return "" if allowed else "is plain http, which exposes the token in transit"
