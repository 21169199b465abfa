"""Refuses what must not be sent: an id is never decoded or interpreted, so one that would have to be is refused.

Deleting is permanent, so a folder id must plainly be that of one folder. A file id, which deletes nothing, is only refused if it
cannot be one.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

_PUNCTUATION = frozenset(" _.~:@+=-!(),'&/")
# Letters and marks that Unicode defines as invisible (Default_Ignorable_Code_Point); NFKC changes the other ones.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_ZEROS: tuple[Callable[[str], float], ...] = (float, float.fromhex, lambda text: int(text, 0))
# What Python, SQL, JSON, Jinja and pandas render for a missing value, without brackets and quotes.
_NOTHING = frozenset({"", "none", "null", "undefined", "false", "nil", "nan", "-nan", "nat"})
_WRAPPING = re.compile(r"[\s\[\](){}<>\"'`,]+")
# The text of a dict, a list or a tuple, of what a mapped task returned or another object that holds data, and of bytes.
_DATA = re.compile(r"""\[.*\]|[{(].*['":,].*[})]|\w+\([\[{<].*\)|b(['"]).*\1|<.*>""", re.DOTALL | re.IGNORECASE)
_FILE_ID_KEY = re.compile(r"""['"]file_id['"]:""")
_TEMPLATES = (("{{", "}}"), ("{%", "%}"))
_MAX_BITS = 4096  # Python refuses to print much longer numbers
# Line breaks and other controls, bidirectional ones included, and half characters.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_UNUSUAL_PLACE = " If the service returns an upload's file id in an unusual place, set extra 'file_id_path' of the connection."
_SOURCE_SCHEMES = ("http", "https", "ftp")
_SOURCE_ADVICE = "Set it to an absolute URL with a host and the scheme http, https or ftp; percent-encode a space as %20."


def is_nothing(text: str) -> bool:
    """Whether ``text`` is what a template renders when its source is missing or empty, such as ``None``, ``nan`` or ``[]``."""
    segments = [segment for segment in text.lower().split("/") if segment]
    words = all(segment == "<na>" or _WRAPPING.sub("", segment) in _NOTHING for segment in segments)
    return words and (bool(segments) or not text)


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
    with suppress(TypeError):  # an array that is no number
        number = operator.index(value)
        return str(number) if number.bit_length() <= _MAX_BITS else None
    return None


def validate_text(value: Any, field: str) -> str:
    """``value`` as a string, stripped: the guard of every templated id, URL and path.

    :raises InvalidInputError: if it has no text, as :func:`text_of` says; if it is what a template renders when its source is
        missing, or the text of a list, a dict or a boolean; or if it holds a template or a control character. A printed float is
        accepted: it may be an id, such as ``2024.01``. The message does not repeat what may be a URL.
    """
    text = "None" if value is None else text_of(value)
    if text is None:
        advice = _advice(field, has_file_id=isinstance(value, Mapping) and "file_id" in value)
        raise InvalidInputError(f"{field} must be a string, not {type(value).__name__}", advice=advice)
    text = text.strip()
    if is_nothing(text):
        where = _UNUSUAL_PLACE if field == "file_id" else ""
        raise InvalidInputError(
            f"{field} is {f'{text!r}' if text else 'empty'}, which is what a template renders when its source is missing",
            advice=f"Check that the upstream task ran and returned the value.{where}",
        )
    if _DATA.fullmatch(text) or text.lower() == "true":
        advice = _advice(field, has_file_id=bool(_FILE_ID_KEY.search(text)))
        raise InvalidInputError(f"{field} is the text of a list, a dict or another value", advice=advice)
    _validate_characters(text, field)
    return text


def _validate_characters(text: str, field: str) -> None:
    if any(end in text.partition(begin)[2] for begin, end in _TEMPLATES):
        raise InvalidInputError(
            f"{field} is a template that was not rendered",
            advice="Pass it as a template field. Write braces that belong to a URL as %7B and %7D.",
        )
    if _CONTROLS.search(text):
        raise InvalidInputError(f"{field} contains a line break or control character, or is not valid Unicode")


def _advice(field: str, *, has_file_id: bool) -> str:
    if has_file_id:  # such as the XCom of an upload or of a link
        return "Pass its file_id where a file's id is expected: {{ ti.xcom_pull(task_ids='upload', key='upload')['file_id'] }}."
    return f"Pass one value; expand({field}=...) maps an operator over a list. Check what its template renders."


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


def folder_id_problem(folder_id: str) -> str:
    """Why ``folder_id`` is not plainly the id of one folder; empty if it is."""
    for char in folder_id:
        if char not in _PUNCTUATION and unicodedata.category(char)[0] not in "LMN":
            return f"the character {char!a} in it could be read in several ways"
    if unicodedata.normalize("NFKC", folder_id) != folder_id or _INVISIBLE.search(folder_id):
        return "a character in it is invisible, or a variant of another one (NFKC)"
    if not all(map(_is_name, folder_id.split("/"))):
        return "it may mean the root or another folder, as a part of it is empty or names none"
    return ""


def _is_name(segment: str) -> bool:
    return (
        segment == segment.strip(" ")
        and not is_nothing(segment)
        and not segment.endswith(".")
        and any(char.isalnum() and unicodedata.numeric(char, 1) for char in segment)
        and not any(map(_is_zero, segment.split(":")))
    )


def _is_zero(text: str) -> bool:
    for read in _ZEROS:
        with suppress(ValueError, OverflowError):
            if read(text) == 0:
                return True
    return False


def _compared(folder_id: str) -> str:
    return folder_id.strip("/").casefold()


def validate_source_url(value: Any) -> str:
    """A URL for the service to fetch a file from.

    :raises InvalidInputError: as :func:`validate_text`; if it is no absolute URL, or parsers split it differently. The message
        has nothing of it that could be secret.
    """
    url = validate_text(value, "url")
    problem = ""
    try:
        if (scheme := split_url(url).scheme) not in _SOURCE_SCHEMES:
            problem = f"has the scheme '{scheme}'"
        elif " " in url or not url.isprintable():
            problem = "contains a space or an invisible character"
    except AmbiguousUrlError as error:
        problem = str(error)
    if problem:
        raise InvalidInputError(f"url {redact_url(url)} {problem}", advice=_SOURCE_ADVICE)
    return url
