"""Values that must never be printed, and every form in which they could be.

A token with ``+`` or ``/`` in it travels percent-encoded, and whoever prints the URL prints it in that form. Masking the raw
value alone therefore protects nothing.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

MASK = "***"
# The characters that requests and yarl (aiohttp) leave alone when they encode a URL that somebody else put together.
_SAFE_IN_REQUESTS = "!#$%&'()*+,/:;=?@[]~"
_SAFE_IN_YARL = "?/:@-._~!$'()*,"
_MIN_VALUE_LENGTH = 8  # of a query parameter that may be a credential
_WORD = re.compile(r"[a-z]{1,12}|[A-Z][a-z]{0,11}|[A-Z]{1,12}")  # `format=response` is none, and would hide the word everywhere
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")
_HOST_AND_PATH = re.compile(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::[0-9]{1,5})?/[A-Za-z0-9_./~-]*")
_MIN_LENGTH = 3  # a shorter "secret" would blank out half of every sentence, and hides nothing


class Secret:
    """A string that does not show itself: not by ``str``, ``repr`` or ``format``, and not in the ``repr`` of what holds it.

    :param value: the secret text.
    """

    __slots__ = ("_core", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._core: str | None = None

    def reveal(self) -> str:
        """The secret text; call it where the text is sent, and nowhere else."""
        return self._value

    @property
    def core(self) -> str:
        """The longest run of letters and digits in it, in lower case: no printed form breaks it up."""
        if self._core is None:
            self._core = max(_ALPHANUMERIC.findall(self._value), key=len, default="").lower()
        return self._core

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"


def printed_forms(secret: Secret) -> tuple[str, ...]:
    """Every text that ``secret`` can be printed as, the longest first.

    :param secret: the secret; one of fewer than three characters has no forms.
    """
    value = secret.reveal()
    if len(value) < _MIN_LENGTH:
        return ()
    if value.isascii() and value.isalnum():
        return (value,)  # it is the same in every encoding
    raw = value.encode("utf-8", "replace").decode("utf-8")
    encoded = {
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        quote(raw, safe=_SAFE_IN_REQUESTS),
        quote(raw, safe=_SAFE_IN_YARL),
        quote_plus(raw, safe=_SAFE_IN_YARL),
    }
    lower = {re.sub("%[0-9A-F]{2}", lambda match: match.group().lower(), form) for form in encoded}
    escaped = {json.dumps(raw)[1:-1], repr(raw)[1:-1], ascii(raw)[1:-1]}
    return tuple(sorted({value, raw} | encoded | lower | escaped, key=lambda form: (-len(form), form)))


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` with every form of every secret replaced by ``***``.

    One pass, longest form first: a secret that begins like a shorter one does not lose its tail.

    :param text: anything that is about to be shown.
    :param secrets: what must not stand in it.
    """
    lowered = text.lower()
    suspects = tuple([secret for secret in secrets if secret.core in lowered])
    if not suspects:
        return text  # the usual case, which is not worth the forms: a batch has other secrets at every URL
    forms = _forms(suspects)
    if not any(form in text for form in forms):
        return text
    return re.sub("|".join(map(re.escape, forms)), MASK, text)


@functools.lru_cache(maxsize=64)  # a waiter asks for those of the same token at every poll
def _forms(secrets: tuple[Secret, ...]) -> tuple[str, ...]:
    return tuple(sorted({form for secret in secrets for form in printed_forms(secret)}, key=len, reverse=True))


def redact_url(url: str) -> str:
    """``url`` without what may give access: user info, query and fragment. Scheme, host, port and path stay.

    :param url: an absolute URL. A text that two readers take apart differently is replaced whole, and so is one that is none,
        unless it is a host with a path whose scheme was forgotten.
    """
    try:
        parts = split_url(url)
    except AmbiguousUrlError:
        return url if _HOST_AND_PATH.fullmatch(url) else MASK
    netloc = parts.netloc.rpartition("@")[2]
    if "@" in parts.netloc:
        netloc = f"{MASK}@{netloc}"
    return urlunsplit((parts.scheme, netloc, parts.path, MASK if parts.query else "", MASK if parts.fragment else ""))


def url_secrets(url: str) -> tuple[Secret, ...]:
    """What stands in ``url`` and may give access: user, password, fragment, the query, and the longer values in it.

    A short value or a word, such as ``id=200`` or ``format=response``, is no credential by itself, and hiding it would hide the
    same text everywhere.

    :param url: a URL, such as a presigned one.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return (Secret(url),)
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    userinfo = parts.netloc.rpartition("@")[0]
    values = [value or name for name, _, value in pairs]
    pieces = [
        userinfo,
        *userinfo.split(":", 1),
        parts.fragment,
        parts.query,
        *(value for value in values if len(value) >= _MIN_VALUE_LENGTH),
    ]
    found = {decoded for piece in pieces for decoded in (piece, unquote(piece), unquote_plus(piece)) if decoded}
    return tuple(Secret(piece) for piece in sorted(found))
