"""Decides whether a text is plainly the id of one folder. Nothing else is deleted, or accepted as a protected id."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# What Python, SQL, JSON, Jinja and pandas render for a missing value.
_NOTHING = frozenset({"", "none", "null", "undefined", "false", "nil", "nan", "nat", "<na>", "[]", "{}"})
_PUNCTUATION = "_.~:@+=-!(),'&"
# Letters and marks that Unicode defines as invisible (Default_Ignorable_Code_Point) and that NFKC leaves unchanged.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_NUMBER_PARSERS: tuple[Callable[[str], float], ...] = (float, float.fromhex, lambda text: int(text, 0))


def is_nothing(text: str) -> bool:
    """Whether ``text`` is what a template renders when its source is missing or empty, such as ``None``, ``nan`` or ``[]``."""
    return text.strip().lower() in _NOTHING


def folder_id_problem(folder_id: str) -> str:
    """Return the reason why ``folder_id`` is not plainly the id of one folder; empty if it is."""
    parts = folder_id.split("/")
    return next((reason for is_refused, reason in _REFUSED_PARTS if any(map(is_refused, parts))), "")


def _is_refused_character(char: str) -> bool:
    return char not in f" {_PUNCTUATION}" and unicodedata.category(char)[0] not in "LMN"


def _is_zero(part: str) -> bool:
    """Whether any parser of numbers may read the part, or a piece of it between colons, as zero."""
    values = [unicodedata.numeric(char, 1) for char in part if char.isalnum()]  # a letter is not zero
    return all(value == 0 for value in values) or any(map(_reads_as_zero, part.split(":")))


def _reads_as_zero(text: str) -> bool:
    for parse in _NUMBER_PARSERS:
        with suppress(ValueError, OverflowError):
            if parse(text) == 0:
                return True
    return False


_REFUSED_PARTS: tuple[tuple[Callable[[str], Any], str], ...] = (
    (lambda part: any(map(_is_refused_character, part)), f"it holds more than letters, digits, spaces and {_PUNCTUATION}/"),
    (lambda part: unicodedata.normalize("NFKC", part) != part, "a character in it is a variant of another one (NFKC)"),
    (_INVISIBLE.search, "a character in it is invisible"),
    (lambda part: part != part.strip(" "), "a part of it begins or ends with a space"),
    (lambda part: part.endswith("."), "a part of it ends with a dot"),
    (lambda part: not any(map(str.isalnum, part)), "a part of it has no letter and no digit"),
    (is_nothing, "a part of it is what a template renders when its source is missing"),
    (_is_zero, "a part of it reads as zero, which may be the root"),
)
"""The checks of each part of a folder id (the text between slashes), with the reason to give if a check refuses the part."""
