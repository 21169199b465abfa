"""Splits a URL only if every parser splits it alike: an ambiguous one is neither sent nor given a token."""

from __future__ import annotations

import functools
import ipaddress
import re
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

_SHAPE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
# Without a colon, or a name with a dot, this machine or an address, which are no user.
_PLAIN_HOST = re.compile(r"[^@:]+|(?:[^@:]*\.[^@:]*|localhost|\[[^@]*\])(?::[0-9]+)?")


class AmbiguousUrlError(ValueError):
    """Not a URL, or one that parsers split differently. The message repeats nothing of it."""


@functools.lru_cache  # a source URL is split for validation and for redaction
def split_url(url: str) -> SplitResult:
    """The parts of an absolute URL (RFC 3986 section 3), with a host and, if any, a port from 1 to 65535.

    Most parsers take part of user info with a raw ``/`` or ``@`` for the host or the path. So an ``@`` in a path is rejected
    unless what stands before the path is plainly a host. A raw ``?`` or ``#`` in a password leaves no valid port, or ends up in
    the query, which is never displayed.

    :raises AmbiguousUrlError: if it is ambiguous or not a URL; the message says why.
    """
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        raise AmbiguousUrlError("has no scheme with '://' after it, such as https://")
    authority = shape["authority"]
    if "\\" in url:
        raise AmbiguousUrlError("contains a backslash: write it as %5C")
    if " " in authority or not authority.isprintable():
        raise AmbiguousUrlError("contains a space or an invisible character in its host")
    user_info, _, address = authority.rpartition("@")
    if "@" in user_info or ("@" in shape["path"] and not _PLAIN_HOST.fullmatch(authority)):
        raise AmbiguousUrlError(
            "has an '@' that may end user info with a '/', '?', '#' or '@' in it: write those as %2F, %3F, %23, %40"
        )
    return _validated(url, address)


def _validated(url: str, address: str) -> SplitResult:
    host, colon, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if ":" in host and not host.startswith("["):
        raise AmbiguousUrlError("has more than one ':' in its host and port")
    if colon and not (_PORT.fullmatch(port) and 1 <= int(port) <= 65535):
        raise AmbiguousUrlError("has a port that is not a number from 1 to 65535")
    with suppress(ValueError):  # brackets without an IPv6 address, or characters that NFKC turns into delimiters
        parts = urlsplit(url)
        if _is_host(parts.hostname or "", (host if colon else address).startswith("[")):
            return parts
    raise AmbiguousUrlError("has no valid host")


@functools.lru_cache  # the URLs of a batch have few hosts
def _is_host(host: str, is_bracketed: bool) -> bool:
    if is_bracketed:
        return bool(ipaddress.IPv6Address(host))
    # The codec rejects an empty label and one of more than 63 characters.
    return not re.search(r"[^\w.~-]", host) and bool(host.encode("idna"))


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) is this machine (RFC 6761 section 6.3, RFC 1122 section 3.2.1.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def url_problem(url: str, *, allow_http: bool = False, allow_loopback: bool = True) -> str:
    """Why nothing must be downloaded from a URL, or an empty string; it repeats nothing of the URL but the scheme.

    :param allow_loopback: whether plain http is allowed to this machine.
    """
    try:
        parts = split_url(url)
    except AmbiguousUrlError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return f"has the scheme '{parts.scheme}'"
    if parts.username is not None:
        return "contains a user name or password"
    allowed = parts.scheme == "https" or allow_http or (allow_loopback and is_loopback(parts.hostname or ""))
    return "" if allowed else "is plain http, which exposes the token in transit"
