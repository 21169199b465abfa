"""Values that must never be printed, in the forms in which this package's libraries print them: raw, percent-encoded, in JSON.

A token with ``+`` or ``/`` is sent percent-encoded, and a printed URL contains it in that form: masking only the raw value would
not protect it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

MASK = "***"
# The characters that requests and yarl (aiohttp) do not encode in a given URL.
_SAFE_IN_REQUESTS = "!#$%&'()*+,/:;=?@[]~"
_SAFE_IN_YARL = "?/:@-._~!$'()*,"
# What is no valid URL, and holds no user info, query or fragment: a scheme with a host and a path, or a path, a host with one, or
# the name of a file. A single word might be a token, and a colon stand before a password.
_HARMLESS = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/?#@:]*(?::[0-9]*)?(?:/[^?#@]*)?"
    r"|(?:https?:|ftp:)?[\w.~-]*(?::[0-9]{1,5})?/[\w./~!$'()*,% -]*"
    r"|(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::[0-9]{1,5})?/[\w./~@-]*"
    r"|[\w.-]+\.[a-z][a-z0-9]{1,4}",
    re.IGNORECASE,
)
# Scheme, whatever may be user info, what cannot be part of it, and query or fragment: an "@" there might end user info, too.
_UNCLEAR = re.compile(
    r"([a-z][a-z0-9+.-]*://)([^?#]*@)?([\w.-]+(?::[0-9]*)?(?:/[\w./~!$&'()*+,;=:%\\-]*)?)([?#][^@]*)?", re.IGNORECASE
)
# A colon before an "@" that is not before a port: s3://KEY:SECRET@bucket/key. A raw "/" or "@" may be in the secret.
_PATH_CREDENTIALS = re.compile(r"://[^/@]*(?::|%3a)(?!\d{1,5}/).*@", re.IGNORECASE | re.DOTALL)
# How the name of a credential ends, in lower case with words joined by "_": a long one within a word, too (downloadtoken).
_CREDENTIAL_NAME = re.compile(
    ".*(?:token|password|passwd|passphrase|pwd|secret|signature|sig|credential|cookie|jwt|authorization|sessionid|sessid"
    "|(?:api|access|secret|private|signing|encryption|account|shared|subscription)_?key(?:_?id)?"
    "|(?<![a-z])(?:pass|pw|pin|otp|auth|sid|session(?:_id)?))s?_?[0-9]*"
)
_PARAMETER = re.compile(r"([?&#;]([\w.%-]{1,64})=)([^&#;\s\"'<>]+)")
# Masking one would garble every log.
_WORD = re.compile(
    "true|false|yes|none|null|nil|undefined|nan|empty|unknown|enabled|disabled|required|optional"
    "|default|auto|all|any|public|private|internal|external|anonymous|guest|users?|demo|sandbox"
    "|prod|production|stage|staging|dev|development|test|testing|preview|local|live|main|master|latest|current"
    "|files?|data|download|upload|raw|text|json|csv|xml|html|name|value|home|index|git|bearer|basic",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r".+\.[a-z][a-z0-9]{1,4}", re.IGNORECASE | re.DOTALL)
_USER_INFO = re.compile(r"://[^/\s@\"'<>]{1,512}@")
_SEPARATOR = re.compile("[&;]")
_NO_PASSWORD = ("", "x-oauth-basic")  # the user is a token
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")
_MIN_LENGTH = 3  # masking a shorter "secret" would garble every message
_MIN_PART_LENGTH = 8  # a shorter one may be part of another value by chance


class Secret:
    """A string that ``str``, ``repr`` and ``format`` do not reveal, also inside other values."""

    __slots__ = ("_core", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._core: str | None = None  # not computed before it is needed: the URLs of a batch are one secret

    def may_be_in(self, lowered: str) -> bool:
        """Whether a text in lower case may contain a printed form: each has the longest run of letters and digits unbroken."""
        if self._core is None:
            self._core = max(_ALPHANUMERIC.findall(self._value), key=len, default="").lower()
        return self._core in lowered

    def reveal(self) -> str:
        """The secret; call this only where it is sent."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"


def printed_forms(secret: Secret) -> tuple[str, ...]:
    """Every form in which ``secret`` can be printed, longest first; one of fewer than three characters has none."""
    value = secret.reveal()
    if len(value) < _MIN_LENGTH:
        return ()
    if value.isascii() and value.isalnum():
        return (value,)  # the same in every encoding
    raw = value.encode("utf-8", "replace").decode("utf-8")
    encoded = {quote(raw, safe=safe) for safe in ("", "/", _SAFE_IN_REQUESTS, _SAFE_IN_YARL)}
    encoded |= {quote_plus(raw, safe=safe) for safe in ("", _SAFE_IN_YARL)}
    lower = {re.sub("%[0-9A-F]{2}", lambda match: match.group().lower(), form) for form in encoded}
    in_json = json.dumps(raw)[1:-1]
    return tuple(
        sorted({value, raw, in_json, in_json.replace("/", "\\/")} | encoded | lower, key=lambda form: (-len(form), form))
    )


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` with every form of every secret replaced by ``***``.

    One pass, longest form first: a secret that begins with a shorter one is masked completely.
    """
    lowered = text.lower()
    # Usually none, so that no forms are computed: in a batch, each URL has its own secrets.
    found = tuple([secret for secret in secrets if secret.may_be_in(lowered)])
    forms = _forms(found) if found else ()
    return re.sub("|".join(map(re.escape, forms)), MASK, text) if forms else text


@functools.lru_cache  # a wait needs those of the same token at every poll
def _forms(secrets: tuple[Secret, ...]) -> tuple[str, ...]:
    return tuple(sorted({form for secret in secrets for form in printed_forms(secret)}, key=len, reverse=True))


def hides_secret(text: str, secrets: Iterable[Secret]) -> bool:
    """Whether ``text`` repeats one of ``secrets``: as a whole or, from eight characters on, as a part."""
    return any(
        text == secret.reveal() or (len(secret.reveal()) >= _MIN_PART_LENGTH and redact(text, [secret]) != text)
        for secret in secrets
    )


def redact_url(url: str) -> str:
    """``url`` without possible credentials: user info, query and fragment. Scheme, host, port and path remain.

    Of a URL that parsers split differently, what follows its last ``@`` is shown. What is not a URL, such as a relative one, is
    shown if nothing of it can be a credential, or else masked completely.
    """
    try:
        parts = split_url(url)
    except AmbiguousUrlError:
        if _HARMLESS.fullmatch(url) and _HARMLESS.fullmatch(unquote(url)):
            return url
        if unclear := _UNCLEAR.fullmatch(url):
            scheme, user_info, shown, rest = unclear.groups()
            return f"{scheme}{f'{MASK}@' if user_info else ''}{shown}{f'?{MASK}' if rest else ''}"
        return MASK
    _, at, address = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{address}" if at else address
    return urlunsplit((parts.scheme, netloc, parts.path, MASK if parts.query else "", MASK if parts.fragment else ""))


def holds_credentials(path: str) -> bool:
    """Whether the user info of a path holds a user and a password; a user alone is the id of an Airflow connection."""
    return bool(_PATH_CREDENTIALS.search(path))


def redact_path(path: str) -> str:
    """``path`` without a user and a password. What is left still holds credentials, masked ones, so that nothing opens it."""
    return _PATH_CREDENTIALS.sub(f"://{MASK}:{MASK}@", path)


@functools.lru_cache(1024)  # the responses of a service have few names
def is_credential_name(name: str) -> bool:
    """Whether a field or parameter of this name holds a credential, such as ``download_token`` or ``X-Amz-Signature``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return bool(_CREDENTIAL_NAME.fullmatch(re.sub(r"[\W_]+", "_", words)))


def is_credential_parameter(name: str) -> bool:
    """Whether a parameter of a request holds one: also ``key``, which in a response is mostly a name in a store."""
    return is_credential_name(name) or name.lower() == "key"


def is_word(text: str) -> bool:
    """Whether ``text`` is a word that everybody writes, such as ``true``: no credential, whatever its parameter is called."""
    return bool(_WORD.fullmatch(text))


def redact_parameters(text: str) -> str:
    """``text`` without the credentials of the URLs in it: user info, and parameters whose names say that they hold one."""
    if "=" in text:
        text = _PARAMETER.sub(_redacted_parameter, text)
    return _USER_INFO.sub(f"://{MASK}@", text) if "://" in text else text


def _redacted_parameter(found: re.Match[str]) -> str:
    is_shown = not is_credential_name(unquote(found[2])) or is_word(found[3].rstrip(".,)"))  # the URL may end a clause
    return found[0] if is_shown else found[1] + MASK


def url_secrets(url: str) -> tuple[Secret, ...]:
    """The credentials in ``url``: user info, query and fragment, each as a whole; the password; parameters with such names.

    A user is one only where it may be a token: without a password, or with the one that stands for none. No other value is one
    by itself: a file's name or id may also stand in a query, and masking it would mask the same text everywhere. So what the path
    shows anyway, and a word that everybody writes, are none.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return (Secret(url),)
    userinfo = parts.netloc.rpartition("@")[0]
    user, _, password = userinfo.partition(":")
    pairs = [pair.partition("=") for text in (parts.query, parts.fragment) if text for pair in _SEPARATOR.split(text)]
    values = [value for name, _, value in pairs if _is_credential(unquote(name), value)]
    pieces = [userinfo, user if password in _NO_PASSWORD else password, parts.query, parts.fragment, *values]
    found = {decoded for piece in pieces if piece for decoded in (piece, unquote(piece), unquote_plus(piece))}
    shown = {part for path in (parts.path, unquote(parts.path)) for part in (path, path.strip("/"), *path.split("/"))}
    return tuple(Secret(piece) for piece in sorted(found - shown) if not is_word(piece))


def _is_credential(name: str, value: str) -> bool:
    """Whether a parameter holds one. ``key`` is also what object stores call the path of a file."""
    return is_credential_name(name) or (is_credential_parameter(name) and not _FILE_NAME.fullmatch(value))
