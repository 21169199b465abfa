"""Refuses values that must not be sent. An id that would have to be decoded or interpreted is refused, too.

Deleting is permanent, so a folder id must plainly be the id of one folder; a file id is refused only if it cannot be an id.
"""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_provider_cloudstore.exceptions import InvalidInputError
from airflow_provider_cloudstore.protocol.folder_ids import folder_id_problem, is_nothing
from airflow_provider_cloudstore.protocol.secrets import redact_url
from airflow_provider_cloudstore.protocol.urls import AmbiguousUrlError, split_url

# The text of a dict, a list or a tuple, of the return values of a mapped task, of another object with data, or of True.
_DATA = re.compile(r"""\[.*\]|[{(].*['":,].*[})]|\w+\([\[{<].*\)|<.*>|[Tt]rue""", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)
# Line breaks and other control characters, including bidirectional controls, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SOURCE_SCHEMES = ("http", "https", "ftp")
_SOURCE_ADVICE = "Set it to an absolute URL with a host and the scheme http, https or ftp; percent-encode a space as %20."


def text_of(value: Any) -> str | None:
    """Return the text of a string, a whole number, a ``UUID`` or a ``Decimal`` with digits alone; None for any other value.

    Databases return ids of these types. A float has no text here, because its digits are ambiguous: 2025.10 equals 2025.1.
    """
    if isinstance(value, str):
        return "".join(value)  # turns a member of a string enumeration into its value
    if isinstance(value, UUID) or (isinstance(value, Decimal) and str(value).removeprefix("-").isdecimal()):
        return str(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    with suppress(TypeError, ValueError):  # an array that is not a number, or a number too long to print
        return str(operator.index(value))
    return None


def validate_text(value: Any, field: str) -> str:
    """Return ``value`` as a stripped string. This is the guard of every templated id, URL and path.

    :raises InvalidInputError: if :func:`text_of` refuses the value; if it is what a template renders when its source is missing,
        or the text of a list or a dict; or if it contains a template or a control character. A printed float is accepted, because
        it may be an id, such as ``2024.01``. The message does not repeat text that may be a URL.
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
        "Pass a single value. From an upload's XCom, that is {{ ti.xcom_pull(task_ids='upload', key='upload')['file_id'] }}. "
        f"To run an operator for each item of a list, use expand({field}=...)."
    )


def validate_folder_id(value: Any, protected: frozenset[str]) -> str:
    """Return the id of a folder to delete. Protected ids are compared without regard to case.

    :raises InvalidInputError: as :func:`validate_text`; if the id is not plainly the id of one folder; or if it is protected.
    """
    folder_id = validate_text(value, "folder_id")
    problem = folder_id_problem(folder_id)
    if (given := text_of(value)) != folder_id:
        problem = "white space stands around it"
    if problem:
        raise InvalidInputError(
            f"folder_id {given!r} is refused: {problem}, and deletion is permanent",
            advice="Set it to the id of a single folder, as the service shows it.",
        )
    if folder_id.casefold() in map(str.casefold, protected):
        raise InvalidInputError(
            f"folder_id {folder_id!r} is protected: extra 'protected_folder_ids' of the connection lists it, and deletion is "
            "permanent"
        )
    return folder_id


def validate_source_url(value: Any) -> str:
    """Return a URL from which the service can fetch a file.

    :raises InvalidInputError: as :func:`validate_text`; if the value is not an absolute URL, or if parsers split it differently.
        The message repeats no part of the URL that could be secret.
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
