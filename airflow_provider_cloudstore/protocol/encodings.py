"""Finds a secret that a text holds in another encoding: what somebody else can decode is as good as in clear.

Masking replaces the forms that libraries print. A service, or whoever answers in its place, may encode what it repeats in any
other way, so a text is decoded before it is trusted: percent, HTML, JSON and PHP escapes, base64 and hexadecimal, layer by layer.
"""

from __future__ import annotations

import binascii
import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from urllib.parse import unquote

from airflow_provider_cloudstore.protocol.secrets import Secret

_SHORTEST = 8  # a shorter one turns up by chance: "response" decoded from something is no leak of `format=response`
_MOST_TEXTS = 24  # decoded from one text: a bound for hostile nesting
_ESCAPE = re.compile(
    r"((?:\\x[0-9a-f]{1,2}|\\[0-3][0-7]{2})+)|\\(?:u\{([0-9a-f]{1,6})\}|(?-i:U)([0-9a-f]{8})|(?-i:u)([0-9a-f]{4})|(.))",
    re.IGNORECASE | re.DOTALL,
)
_HEX_PAIRS = re.compile(r"(?:[0-9A-Fa-f]{2}[:.+-]){7,}[0-9A-Fa-f]{2}")
_QUOTED_PRINTABLE = re.compile(r"=([0-9A-Fa-f]{2})")
_PERCENT_U = re.compile(r"%u([0-9A-Fa-f]{4})")
_BYTE = re.compile(r"\\(?:x([0-9a-f]{1,2})|([0-7]{3}))", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{11,}")  # eight bytes take eleven digits
_HEX = re.compile(r"[0-9A-Fa-f]{16,}")
# Blanks, controls and what is invisible: encoded text is wrapped at will, and UTF-16 that is read as UTF-8 has NULs between.
_FILLING = re.compile(r"[\s\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]+")
_READABLE = re.compile(rb"[\x21-\x7e]{8,}")
_URL_SAFE = str.maketrans("-_", "+/")


def hides_secret(text: str, secrets: Iterable[Secret]) -> bool:
    """Whether ``text`` holds one of ``secrets``, in clear or in an encoding.

    :param text: what is about to be shown or stored; a few KiB at most, because every layer is looked at.
    :param secrets: what must not be in it. One of fewer than eight characters is not looked for.
    """
    needles = list(chain.from_iterable(map(_readings, secrets)))
    if not needles:
        return False
    shortest = min(len(raw) for _, raw in needles)
    waiting, seen = [text], {text}
    while waiting and len(seen) <= _MOST_TEXTS:
        packed = _FILLING.sub("", waiting.pop())
        if any(value in packed for value, _ in needles):
            return True
        blobs = [blob.translate(None, b"\0 \t\r\n") for blob in _blobs(packed, shortest)]  # as in the text itself
        if any(raw in blob for _, raw in needles for blob in blobs):
            return True
        decoded = "\n".join(part.decode("ascii") for blob in blobs for part in _READABLE.findall(blob))
        for one in (_unescape(packed), _unescape_equals(packed), decoded):
            if one and one not in seen:
                seen.add(one)
                waiting.append(one)
    return False


@functools.lru_cache(maxsize=64)  # of a waiter or a batch, the access token is asked for every time
def _readings(secret: Secret) -> tuple[tuple[str, bytes], ...]:
    """A secret as it is, and as it reads once its own escapes are gone: undoing those of a text undoes them there too."""
    value = _FILLING.sub("", secret.reveal())
    found = {value}
    while len(value) >= _SHORTEST and (value := _unescape(value)) not in found:
        found.add(value)
    return tuple((form, form.encode("utf-8", "surrogatepass")) for form in found if len(form) >= _SHORTEST)


def _unescape(text: str) -> str:
    for sign, undo in _UNDO:
        if sign in text:
            text = _FILLING.sub("", undo(text))
    text = _HEX_PAIRS.sub(lambda match: re.sub("[:.+-]", "", match[0]), text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _unescape_percent(text: str) -> str:
    return unquote(_PERCENT_U.sub(lambda match: chr(int(match[1], 16)), text))


def _unescape_equals(text: str) -> str:  # by itself: `key=7363` is no quoted-printable
    return unquote(_QUOTED_PRINTABLE.sub(r"%\1", text)) if "=" in text else text


def _unescape_backslashes(text: str) -> str:
    return _ESCAPE.sub(_character, text)


_UNDO: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("%", _unescape_percent),
    ("&", html.unescape),
    ("\\", _unescape_backslashes),
)


def _character(match: re.Match[str]) -> str:
    octets, braced, eight, four, other = match.groups()
    if octets:
        raw = bytes(int(digits, 16) if digits else int(octal, 8) for digits, octal in _BYTE.findall(octets))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw.decode("latin-1")
    if other is not None:
        return other
    code = int(braced or eight or four, 16)
    return chr(code) if code <= 0x10FFFF else ""


def _blobs(text: str, shortest: int) -> Iterator[bytes]:
    """What the runs of base64 and hexadecimal digits in ``text`` decode to, wherever in a run the encoded text begins."""
    for run in _BASE64.findall(text):
        if 3 * len(run) >= 4 * shortest:
            digits = run.translate(_URL_SAFE)
            for start in range(4):
                length = len(digits) - start
                padded = digits[start : len(digits) - (length % 4 == 1)] + "=" * (-length % 4 % 3)
                yield binascii.a2b_base64(padded)
    for run in _HEX.findall(text):
        for start in range(2):
            yield bytes.fromhex(run[start : len(run) - (len(run) - start) % 2])
