"""Refuses what must not be sent: an id is never decoded or interpreted, so one that would have to be is refused.

Deleting is permanent, so a folder id must plainly be that of one folder. A file id, which deletes nothing, is only refused if it
cannot be one.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

# What Python, SQL, JSON, Jinja and pandas render for a missing value.
_NOTHING = frozenset({"", "none", "null", "undefined", "false", "nil", "nan", "nat", "<na>", "[]", "{}"})
# The text of a dict, a list or a tuple, of what a mapped task returned, of another object that holds data, or of True.
_DATA = re.compile(r"""\[.*\]|[{(].*['":,].*[})]|\w+\([\[{<].*\)|<.*>|[Tt]rue""", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)
# Line breaks and other controls, bidirectional ones included, and half characters.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_PUNCTUATION = "_.~:@+=-!(),'&"
# Letters and marks that Unicode defines as invisible (Default_Ignorable_Code_Point); NFKC changes the other ones.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_NUMBER_READERS: tuple[Callable[[str], float], ...] = (float, float.fromhex, lambda text: int(text, 0))

_SOURCE_SCHEMES = ("http", "https", "ftp")
_SOURCE_ADVICE = "Set it to an absolute URL with a host and the scheme http, https or ftp; percent-encode a space as %20."


def is_nothing(text: str) -> bool:
    """Whether ``text`` is what a template renders when its source is missing or empty, such as ``None``, ``nan`` or ``[]``."""
    return text.strip().lower() in _NOTHING


def text_of(value: Any) -> str | None:
    """The text of a string or a whole number, of a ``UUID`` and of a ``Decimal`` of digits alone; None of anything else.

    Databases return such ids. A float is none, because it has no plain digits: 2025.10 and 2025.1 are the same one.
    """
    if isinstance(value, str):
        return "".join(value)  # of a member of an enumeration its value
    if isinstance(value, UUID) or (isinstance(value, Decimal) and str(value).removeprefix("-").isdecimal()):
        return str(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    with suppress(TypeError, ValueError):  # an array that is no number; a number that is too long to print
        return str(operator.index(value))
    return None


def validate_text(value: Any, field: str) -> str:
    """``value`` as a string, stripped: the guard of every templated id, URL and path.

    :raises InvalidInputError: if it has no text, as :func:`text_of` says; if it is what a template renders when its source is
        missing, or the text of a list or a dict; or if it holds a template or a control character. A printed float is accepted:
        it may be an id, such as ``2024.01``. The message does not repeat what may be a URL.
    """
    text = "None" if value is None else text_of(value)
    if text is None:
        raise InvalidInputError(f"{field} must be a string, not {type(value).__name__}", advice=_advice(field))
    text = text.strip()
    if is_nothing(text):
        shown = repr(text) if text else "empty"
        raise InvalidInputError(
            f"{field} is {shown}, which is what a template renders when its source is missing",
            advice="Check that the upstream task ran and returned the value.",
        )
    if _DATA.fullmatch(text):
        raise InvalidInputError(f"{field} is the text of a list, a dict or another value", advice=_advice(field))
    if _TEMPLATE.search(text):
        raise InvalidInputError(
            f"{field} is a template that was not rendered",
            advice="Pass it as a template field. Write braces that belong to a URL as %7B and %7D.",
        )
    if _CONTROLS.search(text):
        raise InvalidInputError(f"{field} contains a line break or control character, or is not valid Unicode")
    return text


def _advice(field: str) -> str:
    return (
        "Pass one value: of an upload's XCom its file_id, {{ ti.xcom_pull(task_ids='upload', key='upload')['file_id'] }}. "
        f"Over a list, expand({field}=...) maps an operator."
    )


def validate_folder_id(value: Any, protected: frozenset[str]) -> str:
    """The id of a folder to delete; case and surrounding slashes of the protected ones do not matter.

    :raises InvalidInputError: as :func:`validate_text`; if the id is not plainly that of one folder; or if it is protected.
    """
    folder_id = validate_text(value, "folder_id")
    if problem := folder_id_problem(folder_id):
        raise InvalidInputError(
            f"folder_id {folder_id!r} is refused: {problem}, and deletion is permanent",
            advice="Set it to the id of a single folder, as the service shows it.",
        )
    if _compared(folder_id) in map(_compared, protected):
        raise InvalidInputError(
            f"folder_id {folder_id!r} is protected: extra 'protected_folder_ids' of the connection lists it, and deletion is "
            "permanent"
        )
    return folder_id


def _compared(folder_id: str) -> str:
    return folder_id.strip("/").casefold()


def folder_id_problem(folder_id: str) -> str:
    """Why ``folder_id`` is not plainly the id of one folder; empty if it is."""
    parts = folder_id.split("/")
    return next((reason for is_refused, reason in _REFUSED_PARTS if any(map(is_refused, parts))), "")


def _is_other_character(char: str) -> bool:
    return char not in f" {_PUNCTUATION}" and unicodedata.category(char)[0] not in "LMN"


def _is_zero(part: str) -> bool:
    """Whether it is zero, as a whole or between colons, by whatever reads numbers."""
    only_zeros = not any(unicodedata.numeric(char, 1) for char in part if char.isalnum())
    return only_zeros or any(map(_reads_as_zero, part.split(":")))


def _reads_as_zero(text: str) -> bool:
    for read in _NUMBER_READERS:
        with suppress(ValueError, OverflowError):
            if read(text) == 0:
                return True
    return False


_REFUSED_PARTS: tuple[tuple[Callable[[str], Any], str], ...] = (
    (lambda part: any(map(_is_other_character, part)), f"it holds more than letters, digits, spaces and {_PUNCTUATION}/"),
    (lambda part: unicodedata.normalize("NFKC", part) != part, "a character in it is a variant of another one (NFKC)"),
    (_INVISIBLE.search, "a character in it is invisible"),
    (lambda part: part != part.strip(" "), "a part of it begins or ends with a space"),
    (lambda part: part.endswith("."), "a part of it ends with a dot"),
    (lambda part: not any(map(str.isalnum, part)), "a part of it has no letter and no digit"),
    (is_nothing, "a part of it is what a template renders when its source is missing"),
    (_is_zero, "a part of it reads as zero, which may be the root"),
)
"""What a part of a folder's id, between slashes, must not be, and why."""


def validate_source_url(value: Any) -> str:
    """A URL for the service to fetch a file from.

    :raises InvalidInputError: as :func:`validate_text`; if it is no absolute URL, or parsers split it differently. The message
        has nothing of it that could be secret.
    """
    url = validate_text(value, "url")
    try:
        scheme = split_url(url).scheme
        problem = "" if scheme in _SOURCE_SCHEMES else f"has the scheme '{scheme}'"
    except AmbiguousUrlError as error:
        problem = str(error)
    if problem:
        raise InvalidInputError(f"url {redact_url(url)} {problem}", advice=_SOURCE_ADVICE)
    return url
