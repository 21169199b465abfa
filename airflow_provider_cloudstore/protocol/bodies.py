"""What the body of a response is: JSON, text, nothing, or what cannot be the service's own."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.results import Json

_CODINGS = ("gzip", "x-gzip", "deflate")
_OTHER_CODINGS = ("br", "compress", "x-compress", "zstd", "dcb", "dcz", "exi", "aes128gcm")  # all others are none (IANA)
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
PAGE_TYPES = ("text/html", "application/xhtml")
_json = json.JSONDecoder(strict=False)  # careless services send raw line breaks inside strings


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a response.

    :param data: the parsed JSON; the text if it is not JSON; None if it is empty. It may contain secrets.
    :param problem: why it cannot be the service's own; empty if it can.
    """

    data: Json = field(repr=False, default=None)
    problem: str = ""
    is_page: bool = False

    @property
    def text(self) -> str:
        """All of it, for the patterns of the connection's owner."""
        return self.data if isinstance(self.data, str) else json.dumps(self.data, ensure_ascii=False)

    @property
    def keys(self) -> str:
        """The names of its fields, never their values, for an error message."""
        if not isinstance(self.data, dict):
            return "its body is empty" if self.data is None else "its body is no JSON object"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.@-]{1,40}", name) else "?" for name in keys[:20]]
        return f"it has the keys {', '.join(names)}" if names else "it is an empty JSON object"


def read_body(response: Response) -> Body:
    """What is in the body of a response, whose content coding (RFC 9110 section 8.4) is not undone yet."""
    raw, problem = _decoded(response.body, response.headers.get("content-encoding", "").lower())
    if problem:
        return Body(problem=problem)
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text:
        return Body()
    with suppress(ValueError, RecursionError):
        return Body(_json.decode(text))
    if text.startswith("<") or response.headers.get("content-type", "").lower().startswith(PAGE_TYPES):
        kind = "XML" if text.startswith("<?xml") else "a web page"
        return Body(text, f"{kind} in place of the service's response", is_page=True)
    if _BINARY.search(text):
        return Body(problem="a body that is neither JSON nor text")
    return Body(text, "a body that begins like JSON and is not JSON" if text[0] in "{[" else "")


def _decoded(body: bytes, coding: str) -> tuple[bytes, str]:
    """The body without its content coding, and what is wrong with it. A coding that is none leaves a body that reads as it is."""
    if coding in ("", "identity") or not body:
        is_readable = True
    elif any(one.strip() in _CODINGS for one in coding.split(",")):
        # Here, because before aiohttp 3.14 and urllib3 2.6 a small body could grow to hundreds of MiB.
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip or zlib
        with suppress(zlib.error):
            body = inflater.decompress(body, MAX_BODY_BYTES + 1)
        is_readable = inflater.eof or len(body) > MAX_BODY_BYTES
    else:
        is_readable = not (coding in _OTHER_CODINGS or _UNREADABLE.search(body.decode("utf-8", "replace")))
    if not is_readable:
        return b"", "a body in an unknown content coding, or damaged"
    return body, "a body of more than 1 MiB, which was cut off" if len(body) > MAX_BODY_BYTES else ""
