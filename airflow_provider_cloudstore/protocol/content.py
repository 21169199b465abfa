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

from airflow_provider_cloudstore.protocol.errors import one_line
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
    def error_message(self) -> str | None:
        """The service's own message if the content is an error envelope, else None."""
        if not isinstance(self.data, dict):
            return None
        states = [self.data.get(key) for key in ("_status", "status")]
        if not any(isinstance(state, str) and state.strip(_BLANK).lower() == "error" for state in states):
            return None
        return self.message or "no reason given"

    @property
    def message(self) -> str:
        """The service's human-readable message; empty if there is none."""
        if isinstance(self.data, dict):
            message = next((self.data[key] for key in ("response", "message") if isinstance(self.data.get(key), str)), "")
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
