"""Parses the body of a response once, for classification and for storage.

Parsing is lenient: whatever Python's JSON decoder accepts may be an error envelope. What cannot be the service's own response (a
web page, broken JSON, an unknown content coding) is recognized here, with the reason.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cloudstore.exceptions import one_line
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.storable import Json

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
# Any other label is read as UTF-8 with replacements: Python's codecs take seconds for some, and some are not charsets.
_CHARSETS = dict.fromkeys(("iso-8859-1", "iso8859-1", "iso_8859-1", "latin-1", "latin1", "l1"), "latin-1")
_CHARSETS |= dict.fromkeys(("windows-1252", "cp1252", "cp-1252", "x-cp1252"), "cp1252")
_MAX_VALUES = 100_000
"""In JSON: an empty list takes five bytes in a body and sixty in memory."""
_BLANK = "\x00\ufeff \t\r\n"
_PAGE_TYPES = ("text/html", "application/xhtml")
# How a JSON object says that the operation failed, at its top level.
_STATES = ("_status", "status", "result")
_ERROR_WORD = re.compile(r"error(-.*)?|fail(ed|ure)?|ko|nok", re.DOTALL)
_STATUSES = ("_status", "status", "code")
_ERROR_STATUS = re.compile(r"[45][0-9]{2}(\.0+)?")
_ERRORS = ("error", "errors")
_NO_ERROR = ("", "0", "none", "ok")
_MESSAGES = ("response", "message", "msg", "error", "errors")


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a response's body.

    :param text: the body as text; it may contain secrets.
    :param data: the parsed JSON, the text if it is not JSON, or None if it is empty.
    :param problem: why it cannot be the service's own; empty if it can.
    :param is_web_page: whether it is a web page: a login page, a proxy's, or one of the wrong host.
    """

    text: str = field(repr=False, default="")
    data: Json = field(repr=False, default=None)
    problem: str = ""
    is_web_page: bool = False

    @property
    def stated_statuses(self) -> list[int]:
        """The HTTP statuses of errors that a JSON object names in ``_status``, ``status`` and ``code``, such as 404."""
        values = [value for value in self._values(_STATUSES) if not isinstance(value, bool)]
        found = (str(value).strip(_BLANK) for value in values if isinstance(value, (int, float, str)))
        return [int(text[:3]) for text in found if _ERROR_STATUS.fullmatch(text)]

    @property
    def is_error(self) -> bool:
        """Whether a JSON object says in a word, a flag or a number that the operation failed, whatever else is in it."""
        flags = self._values((*_STATES, "success", "ok"))
        words = [_word(value) for value in self._values(_STATES)]
        return (
            bool(self.stated_statuses)
            or any(value is False or _word(value) == "false" for value in flags)
            or any(_ERROR_WORD.fullmatch(word) for word in words)
        )

    @property
    def mentions_error(self) -> bool:
        """Whether a JSON object has an ``error`` or ``errors`` that says something: it may be a warning beside a result."""
        return any(_word(value) not in _NO_ERROR if isinstance(value, str) else value for value in self._values(_ERRORS))

    def _values(self, names: tuple[str, ...]) -> list[Any]:
        return [self.data[name] for name in names if name in self.data] if isinstance(self.data, dict) else []

    @property
    def message(self) -> str:
        """The service's human-readable message; empty if there is none."""
        if isinstance(self.data, dict):
            message = _first_text(self.data)
        else:
            message = self.data if isinstance(self.data, str) and "<" not in self.data else ""
        return " ".join(one_line(message).split())

    @property
    def keys(self) -> str:
        """The names of its fields, never their values, for an error message."""
        if not isinstance(self.data, dict):
            kind = (
                "empty" if self.data is None else "text" if isinstance(self.data, str) else f"a JSON {type(self.data).__name__}"
            )
            return f"its body is {kind}"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.-]{1,40}", name) else "?" for name in keys[:20]]
        return f"it has the keys {', '.join(names)}" if names else "it is an empty JSON object"


def _word(value: Any) -> str:
    return value.strip(_BLANK).lower() if isinstance(value, str) else ""


def _first_text(value: Any, depth: int = 3) -> str:
    """The first text in a message: itself, or that of the first error in a list, or of its own fields of these names."""
    if isinstance(value, str):
        return value if value.strip(_BLANK) else ""
    if isinstance(value, dict):
        parts = [value[name] for name in _MESSAGES if name in value]
    else:
        parts = value[:1] if isinstance(value, list) else []
    return next(filter(None, (_first_text(part, depth - 1) for part in parts)), "") if depth else ""


def read_content(response: Response) -> Content:
    """Parse the body of a response, in linear time and no more memory than a body of 1 MiB needs.

    :param response: the response, its content coding not decoded (RFC 9110 section 8.4).
    """
    body, problem = _decompress(response)
    if problem:
        return Content(problem=problem)
    content_type = response.headers.get("content-type", "").strip()
    text = _decode(body, content_type).strip(_BLANK)
    if not text:
        return Content()
    if len(text) > _MAX_VALUES and text.count(",") + text.count("[") + text.count("{") > _MAX_VALUES:
        return Content(problem=f"a body of more than {_MAX_VALUES:,} JSON values")
    try:
        return Content(text, _DECODER.decode(text))
    except (ValueError, RecursionError):
        pass
    if text.startswith("<") or content_type.lower().startswith(_PAGE_TYPES):
        return Content(text, text, "a web page in place of the service's response", is_web_page=True)
    return Content(text, text, "a body that begins like JSON and is not JSON" if text[0] in "{[" else "")


def _decompress(response: Response) -> tuple[bytes, str]:
    """The decoded body, and why it cannot be decoded."""
    body, coding = response.body, response.headers.get("content-encoding", "").lower()
    if body and coding not in ("", "identity"):
        if coding not in ("gzip", "x-gzip", "deflate"):
            return b"", "a body in a content coding that was not requested"
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip or zlib
        try:
            body = inflater.decompress(body, MAX_BODY_BYTES + 1)
        except zlib.error:
            body = b""
        if len(body) <= MAX_BODY_BYTES and (not inflater.eof or inflater.unused_data):
            return b"", f"a body that is not complete {coding}"
    return body, f"a body of more than {MAX_BODY_BYTES // 1024} KiB, which was cut off" if len(body) > MAX_BODY_BYTES else ""


def _decode(body: bytes, content_type: str) -> str:
    label = None if body.startswith(codecs.BOM_UTF8) else _CHARSET.search(content_type)  # the byte order mark overrides the label
    return body.decode(_CHARSETS.get(label.group(1).lower(), "utf-8") if label else "utf-8", "replace")


def _integer(digits: str) -> int | str:
    # Conversion takes quadratic time. Every Python allows 640 digits (int max_str_digits).
    return int(digits) if len(digits) <= 640 else digits


# Not strict: careless services send raw line breaks inside strings.
_DECODER = json.JSONDecoder(parse_int=_integer, strict=False)
