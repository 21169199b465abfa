"""Values that must never be printed: which they are, the forms in which programs print them, and texts without them.

A token with ``+`` or ``/`` is sent percent-encoded, and a printed URL contains it in that form: masking only the raw value would
not protect it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

MASK = "***"

# How the name of a credential ends, in lower case with a space between words: a long one within a word, too (downloadtoken).
_CREDENTIAL_NAME = re.compile(
    "(?:token|password|passwd|passphrase|pwd|secret|signature|sig|credential|cookie|jwt|authorization|sess(?:ion)? ?id"
    "|(?:api|access|secret|private|signing|encryption|account|shared|subscription) ?key(?: ?id)?"
    r"|\b(?:pass|pw|pin|otp|auth|sid|session))s? ?[0-9]*$"
)
# Words that everybody writes: masking one would garble every log.
_WORD = re.compile(
    "true|false|yes|none|null|nil|undefined|nan|empty|unknown|enabled|disabled|required|optional"
    "|default|auto|all|any|public|private|internal|external|anonymous|guest|users?|demo|sandbox"
    "|prod|production|stage|staging|dev|development|test|testing|preview|local|live|main|master|latest|current"
    "|files?|data|download|upload|raw|text|json|csv|xml|html|name|value|home|index|git|bearer|basic",
    re.IGNORECASE,
)
_NO_PASSWORD = ("", "x-oauth-basic")  # the user is a token
_MIN_LENGTH = 3  # masking a shorter "secret" would garble every message
_MIN_PART_LENGTH = 8  # a shorter one may be part of another value by chance

# The characters that a form, a path, requests and yarl (aiohttp) do not encode.
_SAFE_CHARACTERS = ("", "/", "!#$%&'()*+,/:;=?@[]~", "?/:@-._~!$'()*,")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")

# What is not a clear URL but can still be shown: a path, or a URL with a space or a backslash in its path.
_PATH = re.compile(r"(?:https?:|ftp:)?[\w.~ ()\\-]*/[\w./~ ()\\-]*", re.IGNORECASE)
# A colon before an "@" that is not before a port: s3://KEY:SECRET@bucket/key. A raw "/" or "@" may be in the secret.
_PATH_CREDENTIALS = re.compile(r"://[^/@]*:(?!\d{1,5}/).*@", re.DOTALL)
_PARAMETER = re.compile(r"([?&#;]([\w.%-]+)=)([^&#;\s\"'<>]+)")
_USER_INFO = re.compile(r"://[^/\s@\"'<>]+@")


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


def printed_forms(secret: Secret) -> set[str]:
    """Every form in which ``secret`` can be printed: raw and percent-encoded. One of fewer than three characters has none."""
    value = secret.reveal()
    if len(value) < _MIN_LENGTH:
        return set()
    return {value} | {encode(value, safe=safe, errors="replace") for encode in (quote, quote_plus) for safe in _SAFE_CHARACTERS}


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` with every form of every secret replaced by ``***``.

    One pass, longest form first: a secret that begins with a shorter one is masked completely.
    """
    lowered = text.lower()
    # Usually none, so that no forms are computed: in a batch, each URL has its own secrets.
    found = tuple([secret for secret in secrets if secret.may_be_in(lowered)])
    pattern = _pattern(found) if found else None
    return pattern.sub(MASK, text) if pattern else text


@functools.lru_cache  # a wait needs that of the same token at every poll
def _pattern(secrets: tuple[Secret, ...]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets for form in printed_forms(secret)}
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None


def hides_secret(text: str, secrets: Iterable[Secret]) -> bool:
    """Whether ``text`` repeats one of ``secrets``: as a whole or, from eight characters on, as a part."""
    return any(
        text == secret.reveal() or (len(secret.reveal()) >= _MIN_PART_LENGTH and redact(text, [secret]) != text)
        for secret in secrets
    )


def redact_url(url: str) -> str:
    """``url`` without possible credentials: user info, query and fragment. Scheme, host, port and path remain.

    What is not a clear URL is shown if it is plainly a path, and else masked completely.
    """
    try:
        parts = split_url(url)
    except AmbiguousUrlError:
        return url if _PATH.fullmatch(url) else MASK
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
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower()
    return bool(_CREDENTIAL_NAME.search(words.strip()))


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
    is_credential = is_credential_name(unquote(found[2])) and not is_word(found[3])
    return found[1] + MASK if is_credential else found[0]


def url_secrets(url: str) -> tuple[Secret, ...]:
    """The credentials in ``url``: user info, query and fragment, each as a whole; the password; parameters with such names.

    A user is one only where it may be a token: without a password, or with the one that stands for none. No other value is one
    by itself: a file's name or id may also stand in a query, and masking it would mask the same text everywhere. So a part of
    the path, and a word that everybody writes, are none.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return (Secret(url),)
    user_info = parts.netloc.rpartition("@")[0]
    user, _, password = user_info.partition(":")
    pairs = [pair.partition("=") for text in (parts.query, parts.fragment) for pair in re.split("[&;]", text)]
    values = [value for name, _, value in pairs if value and is_credential_parameter(unquote(name))]
    pieces = [user_info, user if password in _NO_PASSWORD else password, parts.query, parts.fragment, *values]
    found = {decoded for piece in pieces if piece for decoded in (piece, unquote(piece), unquote_plus(piece))}
    shown = {*parts.path.split("/"), *unquote(parts.path).split("/")}
    return tuple(Secret(piece) for piece in sorted(found - shown) if not is_word(piece))
