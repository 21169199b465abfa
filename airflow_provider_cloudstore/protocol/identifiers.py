"""Reads an id as the most lenient service could, so that no spelling of the root or of a missing value passes a guard.

Unicode compatibility forms, percent-encoding and invisible characters are decoded until nothing changes, and the result is
resolved as a path. It names a folder only if it contains a letter or a digit other than zero. HTML and backslash escapes are
decoded as alternative readings: a backslash may be a separator, and an ampersand part of a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from airflow_provider_cloudstore.protocol import escapes

# Letters and marks that Unicode defines as invisible (Default_Ignorable_Code_Point), and the blank Braille pattern; all other
# invisible characters are not printable by category.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\U000e0000-\U000e0fff ]")
_CUT = re.compile(r"[?#]")  # where some parsers end the path
_SLASHES = re.compile("[\\\\\u2044\u2215\u2216\u29f5\u29f8\u29f9]")
_NUMBERS: tuple[Callable[[str], float], ...] = (float, float.fromhex, lambda text: int(text, 0))
# What Python, SQL, JSON, Jinja, pandas and NumPy render for a missing value, without brackets and quotes.
_NOTHING = frozenset({"", "none", "null", "undefined", "false", "nil", "nan", "-nan", "nat"})
_NOTHING_AS_IT_STANDS = frozenset({"<na>", "set()"})  # "NA" and "set" alone are ordinary names
_WRAPPING = re.compile(r"[\s\[\](){}<>\"'`,]+")

MAX_LENGTH = 4096
"""Maximum length of an id in characters: decoding every layer takes quadratic time."""


Undo = Callable[[str], str]
_READINGS: tuple[tuple[Undo, ...], ...] = (escapes.ALL[:1], escapes.ALL[:2], escapes.ALL)


def plain(text: str, undone: tuple[Undo, ...] = escapes.ALL[:1]) -> str:
    """``text`` in plain form: without compatibility forms (NFKC), percent-encoding, invisible characters and non-ASCII zeros.

    :param text: an id of at most :data:`MAX_LENGTH` characters.
    :param undone: the escapes to decode.
    """
    while True:
        decoded = text
        for undo in undone:
            decoded = _visible(undo(decoded))
        if decoded == text:
            return _SLASHES.sub("/", text)
        text = decoded


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).partition("\x00")[0]  # where C ends a string
    if not (text.isascii() and text.isprintable()):
        text = "".join("0" if unicodedata.numeric(char, None) == 0 else char for char in text if char.isprintable())
    return _INVISIBLE.sub("", text)


def readings(folder_id: str) -> frozenset[str]:
    """The paths below the root that ``folder_id`` may mean; two ids that share one may be the same folder."""
    return frozenset([_resolved(plain(folder_id, undone)) for undone in _READINGS])


def _resolved(path: str) -> str:
    segments: list[str] = []
    for part in _CUT.split(path, maxsplit=1)[0].split("/"):
        segment = part.partition(";")[0]
        if segment.strip("."):
            segments.append(segment)
        elif len(segment) > 1:  # ".." goes up by one; some read "..." as two
            del segments[max(0, len(segments) + 1 - len(segment)) :]
    return "/".join(segments)


def is_root(folder_id: str) -> bool:
    """Whether ``folder_id`` may mean the root."""
    return not all(any(map(_names_something, path.split("/"))) for path in readings(folder_id))


def is_nothing(text: str) -> bool:
    """Whether ``text`` is what a template renders when its source is missing or empty, such as ``None``, ``nan`` or ``[]``.

    :param text: a rendered id, URL or path.
    """
    if "://" in text or len(text) > MAX_LENGTH:
        return False
    read = plain(text)
    segments = [segment for segment in read.split("/") if segment]
    return not read or (bool(segments) and all(map(_is_word_for_nothing, segments)))


def _is_word_for_nothing(segment: str) -> bool:
    word = segment.lower()
    return word in _NOTHING_AS_IT_STANDS or _WRAPPING.sub("", word) in _NOTHING


def _names_something(segment: str) -> bool:
    return any(char.isalnum() and char != "0" for char in segment) and not _is_zero(segment)


def _is_zero(segment: str) -> bool:
    for number in _NUMBERS:
        try:
            if number(segment) == 0:
                return True
        except (ValueError, OverflowError):
            continue
    return False
