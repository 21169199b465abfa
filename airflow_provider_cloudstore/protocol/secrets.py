"""Values that must never be printed. :func:`secrets_in` finds them in arguments; :func:`redact` masks them in text.

A token with ``+`` or ``/`` is sent percent-encoded, and a printed URL contains it in that form, so masking only the raw value
would not protect it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

MASK = "***"


class Secret:
    """A string that ``str``, ``repr``, ``format`` and serializers do not reveal, even inside other values."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def reveal(self) -> str:
        """Return the secret. Call this only where the secret is sent."""
        return self._value


# What is a credential

# The ends of a credential's name, in lower case with a space between words. An end in the last group must begin a word, because
# "compass" and "shopping" are no credentials; the others need not: "download token", "accesstoken".
_CREDENTIAL_NAME = re.compile(
    "(?:token|password|passwd|passphrase|pwd|secret|signature|sig|credential|cookie|jwt|authorization|sess(?:ion)? ?id"
    "|(?:api|access|secret|private|signing|encryption|account|shared|subscription) ?key(?: ?id)?"
    r"|\b(?:pass|pw|pin|otp|auth|sid|session)|^key(?=[12]$))s? ?[0-9]*$"
)
# Common words: masking them would garble every log.
_WORD = re.compile(
    "[01]|true|false|yes|none|null|nil|undefined|nan|empty|unknown|enabled|disabled|required|optional"
    "|default|auto|all|any|public|private|internal|external|anonymous|guest|users?|demo|sandbox"
    "|prod|production|stage|staging|dev|development|test|testing|preview|local|live|main|master|latest|current"
    "|files?|data|download|upload|raw|text|json|csv|xml|html|name|value|home|index|git|bearer|basic",
    re.IGNORECASE,
)
_NO_PASSWORD = ("", "x-oauth-basic")  # with one of these passwords, the user is a token: https://TOKEN:x-oauth-basic@host


@functools.lru_cache(1024)  # the responses of a service have few different names
def is_credential_name(name: str) -> bool:
    """Whether a field or parameter of this name holds a credential, such as ``download_token`` or ``X-Amz-Signature``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", " ", name).lower()  # apiKey -> api key
    return bool(_CREDENTIAL_NAME.search(words.strip()))


def is_word(text: str) -> bool:
    """Whether ``text`` is a common word, such as ``true``, which is never a credential, whatever its parameter is called."""
    return bool(_WORD.fullmatch(text))


def secrets_in(parameters: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return the credentials in the parameters of a request: values of parameters with such names, and those in URLs.

    Of a URL, these are the user info, the query and the fragment, each as a whole, the password, and the parameters with the name
    of a credential. A user counts only if it may be a token: if the password is empty or a placeholder. Other values in the query
    do not count by themselves, because a query may also contain a file's name or id, and masking it would mask the same text
    everywhere. For the same reason, parts of the path and common words do not count.
    """
    found: list[str] = []
    for name, value in parameters.items():
        if _is_credential_parameter(name):
            found.append(value)
        elif "://" in value:
            found += _secrets_in_url(value)
    return tuple(Secret(value) for value in found if not is_word(value))


def _is_credential_parameter(name: str) -> bool:
    # In a response, "key" mostly names an object.
    return is_credential_name(name) or name.lower() == "key"


def _secrets_in_url(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user_info = parts.netloc.rpartition("@")[0]
    user, _, password = user_info.partition(":")
    pairs = [pair.partition("=") for text in (parts.query, parts.fragment) for pair in re.split("[&;]", text)]
    values = [value for name, _, value in pairs if value and _is_credential_parameter(unquote(name))]
    pieces = [user_info, user if password in _NO_PASSWORD else password, parts.query, parts.fragment, *values]
    decoded = {form for piece in pieces if piece for form in (piece, unquote(piece), unquote_plus(piece))}
    in_path = {*parts.path.split("/"), *unquote(parts.path).split("/")}  # such as a file's name that the query repeats
    return sorted(decoded - in_path)


# How it is masked

_MIN_LENGTH = 3  # masking a shorter "secret" would garble every message
_MIN_PART_LENGTH = 8  # a shorter secret may be part of another value by chance
# The characters that are not encoded by a form, by a path, by requests and by yarl (aiohttp).
_SAFE_CHARACTERS = ("", "/", "!#$%&'()*+,/:;=?@[]~", "?/:@-._~!$'()*,")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")
_PARAMETER = re.compile(r"([?&#;]([\w.%-]+)=)([^&#;\s\"'<>]+)")  # in ?a=1&sig=2: "&sig=", "sig" and "2"
_USER_INFO = re.compile(r"://[^/\s@\"'<>]+@")  # in ftp://user:pass@host: "://user:pass@"


def printed_forms(secret: Secret) -> set[str]:
    """Return every form in which ``secret`` may be printed: raw, percent-encoded and in JSON; none below three characters."""
    value = secret.reveal()
    if len(value) < _MIN_LENGTH:
        return set()
    encoded = {encode(value, safe=safe, errors="replace") for encode in (quote, quote_plus) for safe in _SAFE_CHARACTERS}
    in_json = {json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    return {value} | encoded | in_json | {form.replace("/", r"\/") for form in in_json}  # the last is PHP's


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """Return ``text`` with ``***`` in place of secrets, and of whatever looks like a credential in its URLs.

    Every printed form of a secret is masked, with escapes such as ``%2B`` in either case. What looks like a credential is user
    info, and the value of a parameter with such a name.
    """
    text = _without(secrets, text)
    text = _PARAMETER.sub(_redacted_parameter, text) if "=" in text else text
    return _USER_INFO.sub(f"://{MASK}@", text) if "://" in text else text


def repeats_secret(text: str, secrets: tuple[Secret, ...]) -> bool:
    """Whether ``text`` is one of ``secrets``, or contains one of them that has at least eight characters."""
    long = [secret for secret in secrets if len(secret.reveal()) >= _MIN_PART_LENGTH]
    return any(text == secret.reveal() for secret in secrets) or _without(long, text) != text


def _without(secrets: Iterable[Secret], text: str) -> str:
    # Usually no secret is found, which saves computing the forms: in a batch, each URL has its own secrets.
    found = tuple([secret for secret in secrets if _longest_word(secret.reveal()) in text])
    pattern = _pattern_of(found) if found else None
    return pattern.sub(MASK, text) if pattern else text


def _longest_word(value: str) -> str:
    """Return the longest run of letters and digits in ``value``, which every printed form contains as it is."""
    return max(_ALPHANUMERIC.findall(value), key=len, default="")


@functools.lru_cache  # a wait needs the pattern of the same token at every poll
def _pattern_of(secrets: tuple[Secret, ...]) -> re.Pattern[str] | None:
    """Return a pattern of every form; the longest comes first, so that a secret that begins with another one has no tail left."""
    forms = sorted({form for secret in secrets for form in printed_forms(secret)}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, forms)), re.IGNORECASE) if forms else None


def _redacted_parameter(found: re.Match[str]) -> str:
    beginning, name, value = found.groups()
    return beginning + (MASK if is_credential_name(unquote(name)) and not is_word(value) else value)


def redact_url(url: str) -> str:
    """Mask possible credentials in ``url``: user info, query and fragment. Text that is not a clear URL is masked completely."""
    try:
        parts = split_url(url)
    except AmbiguousUrlError:
        return MASK
    _, at, address = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{address}" if at else address
    return urlunsplit((parts.scheme, netloc, parts.path, MASK if parts.query else "", MASK if parts.fragment else ""))
