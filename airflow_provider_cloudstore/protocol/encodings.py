"""Finds secrets that a text contains in encoded form, which anyone can decode.

Masking replaces the forms that libraries print. A service, or whatever responds in its place, may encode what it repeats in any
other way, so a text is decoded before it is trusted: escapes, base64, base32, base85 and hexadecimal, layer by layer.
"""

from __future__ import annotations

import binascii
import functools
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from urllib.parse import unquote

from airflow_provider_cloudstore.protocol import escapes
from airflow_provider_cloudstore.protocol.secrets import Secret

_MIN_LENGTH = 8  # a shorter one occurs by chance: a decoded "response" does not leak `format=response`
_MAX_TEXTS = 24  # decoded from one text: the limit for hostile nesting
_HEX_PAIRS = re.compile(r"(?:[0-9A-Fa-f]{2}[:.,+-]){7,}[0-9A-Fa-f]{2}|(?:0[xX][0-9A-Fa-f]{2}[:.,;+-]{0,2}){8,}")
_HEX_MARKS = re.compile("0[xX]|[:.,;+-]")
# A line of a hexdump: an offset, up to 16 bytes, and the same bytes in clear text.
_DUMP_LINE = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,16}:?[ \t]+((?:[0-9A-Fa-f]{2}[ \t]{0,2}){1,16})")
_LINE_ESCAPES = re.compile(r"\\(?:([nrtfvb])|.)", re.DOTALL)
_ESCAPES = re.compile(r"[%&\\]")
_HEX_PAIR = re.compile("(?:[:.,+-][0-9A-Fa-f]{2}){7}")  # in every one of the first kind, and cheaper to search for
_QUOTED_PRINTABLE = re.compile(r"=([0-9A-Fa-f]{2})")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{11,}")  # eight bytes take eleven digits
_HEX = re.compile(r"[0-9A-Fa-f]{16,}")
_BASE32_DIGITS = str.maketrans(string.ascii_letters + "234567", "0123456789abcdefghijklmnop" * 2 + "qrstuv")
# The alphabets of RFC 4648 (sections 6 and 7), and how their digits map to those of Python's numbers.
_BASE32: tuple[tuple[re.Pattern[str], dict[int, int]], ...] = (
    (re.compile(r"[A-Za-z2-7]{13,}"), _BASE32_DIGITS),
    (re.compile(r"[0-9A-Va-v]{13,}"), {}),
)


_LOOSE = 3  # bytes at the end of a base85 text, which decode differently if other digits follow


class _Base85:
    """One alphabet of 85 digits: five digits encode four bytes.

    :param alphabet: the digits, in order.
    """

    def __init__(self, alphabet: str) -> None:
        one = f"[{re.escape(alphabet)}]"
        self._run = re.compile(f"{one}{{10,}}")
        self._digits = bytes.maketrans(alphabet.encode(), bytes(range(85)))
        # A readable byte is less than 128, and so the first of five digits is one of the first 42.
        self._group = f"(?:[{re.escape(alphabet[:42])}]{one}{{4}})"
        self._likely: dict[int, re.Pattern[str]] = {}

    def may_hold(self, text: str, length: int) -> bool:
        """Whether ``text`` may encode so many readable bytes; at most three precede the first complete group."""
        groups = max(1, (length - 3) // 4)
        pattern = self._likely.get(groups) or self._likely.setdefault(groups, re.compile(f"{self._group}{{{groups}}}"))
        return pattern.search(text) is not None

    def decoded(self, text: str) -> Iterator[bytes]:
        """What the runs of digits in ``text`` decode to, from every possible start in a run."""
        for run in self._run.findall(text):
            digits = run.encode().translate(self._digits)
            for start in range(5):
                yield _from_base85(digits[start:])


def _from_base85(digits: bytes) -> bytes:
    """The bytes that digits from 0 to 84 encode: all groups at once, each in eight bytes of one large number."""
    groups = -(-len(digits) // 5)
    digits = digits.ljust(5 * groups, b"\x54")
    total = 0
    for place in range(5):
        spread = bytearray(8 * groups)
        spread[7::8] = digits[place::5]
        total = total * 85 + int.from_bytes(spread, "big")
    octets = total.to_bytes(8 * groups, "big")
    found = bytearray(4 * groups)
    for place in range(4):
        found[place::4] = octets[4 + place :: 8]
    return bytes(found)


_BASE85 = (
    _Base85("".join(map(chr, range(ord("!"), ord("u") + 1)))),  # of Adobe and btoa
    _Base85(string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"),  # of RFC 1924 and git
)
# Spaces, control and invisible characters: encoded text may be wrapped, and UTF-16 that is read as UTF-8 has NULs between.
_FILLING = re.compile(r"[\s\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]+")
_READABLE = re.compile(rb"[\x21-\x7e]{8,}")
_URL_SAFE = str.maketrans("-_", "+/")


def _pack(text: str) -> str:
    return text.replace(" ", "") if text.isascii() and text.isprintable() else _FILLING.sub("", text)


def hides_secret(text: str, secrets: Iterable[Secret]) -> bool:
    """Whether ``text`` contains one of ``secrets``, in clear or encoded.

    :param text: a text to display or store; a few KiB at most, because every layer is decoded.
    :param secrets: what it must not contain. A secret of fewer than eight characters is ignored.
    """
    needles = list(chain.from_iterable(map(_readings, secrets)))
    if not needles:
        return False
    shortest = min([len(raw) for _, raw in needles])
    dumped = "".join(_DUMP_LINE.findall(text))
    if text.isascii() and not dumped and not _is_encoded(packed := _pack(text), needles, shortest):
        return any(value in packed for value, _ in needles)  # the usual case: nothing is encoded
    waiting, seen = [dumped, text], {dumped, text}
    while waiting and len(seen) <= _MAX_TEXTS:
        text = waiting.pop()
        packed = _pack(text)
        if any(value in packed for value, _ in needles):
            return True
        blobs = [blob.translate(None, b"\0 \t\r\n") for blob in _blobs(packed, shortest)]  # as in the text itself
        groups = [blob.translate(None, b"\0 \t\r\n") for one in {text, packed} for kind in _BASE85 for blob in kind.decoded(one)]
        if any(raw in blob for _, raw in needles for blob in blobs) or any(
            raw[:-_LOOSE] in blob for _, raw in needles for blob in groups
        ):
            return True
        decoded = "\n".join(part.decode("ascii") for blob in [*blobs, *groups] for part in _READABLE.findall(blob))
        # Each escape separately, too: what begins another escape may be a base85 digit.
        for one in (
            *(_pack(undo(packed)) for undo in escapes.ALL),
            _unescape_equals(packed),
            _unescape(packed),
            _unwrap(packed),
            decoded,
        ):
            if one and one not in seen:
                seen.add(one)
                waiting.append(one)
    return False


@functools.lru_cache(maxsize=64)  # waits and batches need the access token every time
def _readings(secret: Secret) -> tuple[tuple[str, bytes], ...]:
    """A secret, and the secret without its own escapes: decoding a text decodes them as well."""
    value = _pack(secret.reveal())
    found = {value}
    while len(value) >= _MIN_LENGTH and (value := _unescape(value)) not in found:
        found.add(value)
    return tuple((form, form.encode("utf-8", "surrogatepass")) for form in found if len(form) >= _MIN_LENGTH)


def _is_encoded(packed: str, needles: list[tuple[str, bytes]], shortest: int) -> bool:
    """Whether an ASCII text contains an escape, or digits that may hide a secret."""
    if "=" in packed or _is_escaped(packed) or any(3 * len(run) >= 4 * shortest for run in _BASE64.findall(packed)):
        return True
    return not all(raw.isascii() for _, raw in needles) or any(kind.may_hold(packed, shortest) for kind in _BASE85)


def _is_escaped(text: str) -> bool:
    if _ESCAPES.search(text):
        return True
    return bool((_HEX_PAIR.search(text) or "0x" in text or "0X" in text) and _HEX_PAIRS.search(text))


def _unescape(text: str) -> str:
    if text.isascii() and not _is_escaped(text):
        return text
    for undo in escapes.ALL:
        undone = undo(text)
        if undone is not text:
            text = _pack(undone)
    text = _HEX_PAIRS.sub(lambda match: _HEX_MARKS.sub("", match[0]), text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _unwrap(text: str) -> str:
    """``text`` without the escapes of line breaks and tabs: JSON wraps encoded text with them, and so do logs."""
    return _LINE_ESCAPES.sub(lambda match: "" if match[1] else match[0], text) if "\\" in text else text


def _unescape_equals(text: str) -> str:  # separately: `key=7363` is not quoted-printable
    return unquote(_QUOTED_PRINTABLE.sub(r"%\1", text)) if "=" in text else text


def _blobs(text: str, shortest: int) -> Iterator[bytes]:
    """What the runs of digits in ``text`` decode to, from every possible start in a run."""
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
    yield from _from_base32(text, shortest)


def _from_base32(text: str, shortest: int) -> Iterator[bytes]:
    for pattern, digits_of in _BASE32:
        for run in pattern.findall(text):
            if 5 * len(run) >= 8 * shortest:
                number = int(run.translate(digits_of), 32)  # takes linear time, as 32 is a power of two
                for shift in range(8):
                    yield (number << shift).to_bytes(5 * len(run) // 8 + 2, "big")
