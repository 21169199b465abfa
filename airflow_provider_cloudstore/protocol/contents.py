"""Reads the body of a response: where names are looked for, which of them say that the operation failed, and in which words.

The API document shows no response. The tables hold what services of its family answer; nothing is a case for one of them.
"""

from __future__ import annotations

import functools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.secrets import is_credential_name
from airflow_provider_cloudstore.protocol.storable import Json

Fields = dict[str, Any]
"""The fields of an object, their names in lower case."""

_PLACES = {"data": "", "result": "", "response": "", "ocs": "meta", "error": ""}
"""Where ids, tokens and words may stand besides the top level: in a field, or in another one below it."""
_SIGN_PLACES = ("", "ocs", "error")
"""Where signs of an error may stand; the top level has no name."""
# Names of signs, as `plain_name` has them.
_STATES = ("status", "stat", "result", "state", "type")
_FLAGS = ("success", "ok", "issuccess", "succeeded", "successful")
_FAILURE_FLAGS = ("haserrors", "haserror", "iserror", "failed")
_CODES = frozenset(
    ("code", "errno", "errorno", "errorcode", "errcode", "rescode", "responsecode", "resultcode", "returncode", "retcode", "ret",
     "rc", "statuscode", "responsestatus", "httpcode", "httpstatus")
)  # fmt: skip
_ZERO_ALONE = ("errno", "errorno", "errorcode", "errcode")  # in which 1 is an error
_ERRORS = frozenset(
    ("error", "errors", "err", "errormessage", "errormsg", "errmsg", "errordescription", "exception", "exceptionmessage", "fault")
)
_WITH_CODE = frozenset((*_STATES, *_CODES))
SIGN_NAMES = frozenset((*_WITH_CODE, *_FLAGS, *_FAILURE_FLAGS))
_ERROR_WORD = re.compile(
    r"(error|fail|fatal|exception).*"
    r"|(ko|nok|nack|err|denied|forbidden|unauthori[sz]ed|unauthenticated|refused|rejected|invalid|unsuccessful|aborted"
    r"|not[ _-]?found|internal[ _-]error)\b.*",
    re.DOTALL,
)
_ERROR_TYPE = re.compile(r"(error|fail|fatal|exception)[^.]*")  # a type may also be a file's name
_STATUS_LINE = re.compile(r"(?:http/[\d.]+ +)?([45]\d\d)\b.*", re.DOTALL)
_ERROR_TEXT = re.compile(
    r"\W*(php )?(fatal|error|fail(ed|ure)?|exception|uncaught|traceback|internal server error|bad gateway|service unavailable"
    r"|gateway time-?out|forbidden|unauthori[sz]ed|access denied|not[ _-]?found)\b.*",
    re.DOTALL,
)
_SUCCESS_WORDS = ("ok", "success", "successful", "succeeded", "true")
_NOTHING = ("none", "null", "no error", "no errors", "noerror", *_SUCCESS_WORDS)
_NO_ERROR = ("", "0", "false", *_NOTHING)
_BARE_ERRORS = ("false", "error")
_NAME = re.compile(r"(?!-?[0-9.]+$)[\w./:-]{1,80}")
_NUMBER = re.compile(r"-?[0-9]+(\.0+)?")
_WORDS = (
    "response", "message", "msg", "error_description", "detail", "details", "description", "reason", "reason_phrase",
    "error_message", "error_msg", "errormsg", "errmsg", "errstring", "response_text", "response_details", "statusmessage",
    "res_message", "error_summary", "content", "title", "error", "errors", "err", "0",
)  # fmt: skip
_NESTED_WORDS = ("message", "value", "msg", "content", "detail", "description", "reason", "error")
_NAMES_OF_ERRORS = ("error", "code", "errorcode")  # whose text is shown beside the words
_CODINGS = ("gzip", "x-gzip", "deflate")
_OTHER_CODINGS = ("br", "compress", "x-compress", "zstd", "dcb", "dcz", "exi", "aes128gcm")  # all others are none (IANA)
_BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
PAGE_TYPES = ("text/html", "application/xhtml")
_PADDING = re.compile(r"\s*\)?\s*;?\s*")  # what follows JSON in a callback
_json = json.JSONDecoder(strict=False)  # careless services send raw line breaks inside strings


def lowered(value: Any) -> Fields | None:
    """The fields of an object, or of the only item of a list; None if it is neither."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return {str(name).lower(): one for name, one in value.items()} if isinstance(value, dict) else None


@functools.lru_cache  # a service has few of them
def plain_name(name: str) -> str:
    """The name of a field without case, underscores and hyphens."""
    return name.lower().replace("_", "").replace("-", "")


@dataclass(frozen=True, slots=True)
class Signs:
    """How a response says that the operation failed.

    :param says_error: whether a state or a flag says so.
    :param says_success: whether a state or a flag says the contrary.
    :param codes: the codes that are no success: numbers, or words.
    :param mentions_error: whether an ``error`` says something: it may be a warning beside a result.
    """

    says_error: bool = False
    says_success: bool = False
    codes: tuple[int | str, ...] = ()
    mentions_error: bool = False

    @property
    def statuses(self) -> list[int]:
        """The HTTP statuses of errors that codes name."""
        return [code for code in self.codes if isinstance(code, int) and 400 <= code <= 599]

    @property
    def is_error(self) -> bool:
        """Whether the response says that the operation failed, whatever else is in it."""
        return self.says_error or bool(self.statuses if self.says_success else self.codes)


def _signs_in(whole: Fields, places: dict[str, Fields]) -> Signs:
    says, codes = set[bool | None](), list[int | str]()
    for place in _SIGN_PLACES:
        fields = places.get(place, {})
        for name, value in fields.items():
            plain = plain_name(name)
            if plain in SIGN_NAMES:
                success = _says_success(plain, value)
                says.add(success)
                if success is None and plain in _WITH_CODE:
                    codes += _bad_code(plain, value, of_ocs=bool(place) and "statuscode" in fields)
    errors = [value for fields in (whole, places[""]) for name, value in fields.items() if plain_name(name) in _ERRORS]
    mentions = any(_word(value) == "true" or _says_something(value) for value in errors)
    return Signs(False in says, True in says, tuple(codes), mentions)


def _says_success(name: str, value: Any) -> bool | None:
    """What a state or a flag says; None if it says nothing, and of a code."""
    word = _word(value)
    if name in _CODES:
        return None
    if word in _SUCCESS_WORDS:
        return name not in _FAILURE_FLAGS
    if name in _FAILURE_FLAGS:
        return None
    if name in _FLAGS and (word in ("0", "no", "n") or (isinstance(value, (int, float)) and value <= 0)):
        return False
    error = _ERROR_TYPE if name == "type" else _ERROR_WORD
    return False if value is False or word == "false" or error.fullmatch(word) else None


def _bad_code(name: str, value: Any, *, of_ocs: bool = False) -> list[int | str]:
    """The code in a state or in a code's field, if it is one that is no success."""
    if value is None or value == "" or isinstance(value, (dict, list)):
        return []
    word = str(value).strip().lower()
    if name in _STATES and (line := _STATUS_LINE.fullmatch(word)):
        return [int(line[1])]
    if isinstance(value, float) or _NUMBER.fullmatch(word):
        with suppress(ValueError, OverflowError):  # not finite
            number = int(float(value))
            return [] if _is_success(name, number, of_ocs=of_ocs) else [number]
    elif name in _STATES:
        return []
    return [] if word in _NOTHING else [word]


def _is_success(name: str, number: int, *, of_ocs: bool) -> bool:
    if name in _ZERO_ALONE:
        return number == 0
    return number in (0, 1) or 200 <= number <= 299 or (of_ocs and number == 100)


def _says_something(value: Any) -> bool:
    if isinstance(value, dict):
        fields = {plain_name(str(name)): one for name, one in value.items()}
        codes = [name for name in fields if name in _CODES or name in _STATES]
        # Beside a code, only words say something: a request's id does not.
        said = [one for name, one in fields.items() if name not in codes and (not codes or name in _NESTED_WORDS)]
        return any(_bad_code(name, fields[name]) for name in codes) or any(map(_says_something, said))
    if isinstance(value, list):
        return any(map(_says_something, value))
    return _word(value) not in _NO_ERROR if isinstance(value, str) else bool(value)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value.strip().lower()
    return "true" if value is True else ""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a response's body.

    :param data: the parsed JSON, the text if it is not JSON, or None if it is empty; it may contain secrets.
    :param problem: why it cannot be the service's own; empty if it can.
    :param places: the fields at the top level, which has no name, and at other places where they are looked for.
    """

    data: Json = field(repr=False, default=None)
    problem: str = ""
    is_web_page: bool = False
    places: Mapping[str, Fields] = field(repr=False, default_factory=dict)
    signs: Signs = Signs()

    @property
    def top(self) -> dict[str, Any] | None:
        """The JSON object, or the only item of a list; None if it is neither."""
        (data,) = self.data if isinstance(self.data, list) and len(self.data) == 1 else (self.data,)
        return data if isinstance(data, dict) else None

    def values(self, names: Iterable[str]) -> Iterator[Any]:
        """The values of the fields of these names, in lower case, wherever they are looked for."""
        for name in names:
            yield from (fields[name] for fields in self.places.values() if name in fields)

    @property
    def words(self) -> str:
        """What the service says in words, with single spaces; empty if it says nothing, or sent no response of its own."""
        if self.problem:
            return ""
        if not isinstance(self.data, (dict, list)):
            return " ".join(self.data.split()) if isinstance(self.data, str) else ""
        texts = (_text(fields[name]) for fields in self.places.values() for name in _WORDS if name in fields)
        told = (one for name, one in self.places[""].items() if isinstance(one, str) and not is_credential_name(name))
        sentences = (one for one in told if " " in one.strip())
        found = next((text for text in (*texts, *sentences) if text and _word(text) not in _NO_ERROR), "")
        return " ".join(found.split())

    @property
    def message(self) -> str:
        """The words, with the name of the error; without words, the state or the code."""
        words, names = self.words, list(self._named(_NAMES_OF_ERRORS))
        if not words:
            return next(iter([*names, *self._named(_STATES), *map(str, self.signs.codes)]), "")
        beside = next((name for name in names if name.lower() not in words.lower()), "")
        return f"{words} ({beside})" if beside else words

    def _named(self, fields_of: tuple[str, ...]) -> Iterator[str]:
        """Those of such fields that are one word and say something."""
        for place in _SIGN_PLACES:
            plain = {plain_name(name): value for name, value in self.places.get(place, {}).items()}
            for value in map(plain.get, fields_of):
                text = value.strip() if isinstance(value, str) else ""
                if _NAME.fullmatch(text) and text.lower() not in (*_NO_ERROR, *_BARE_ERRORS):
                    yield text

    @property
    def keys(self) -> str:
        """The names of its fields, never their values, for an error message."""
        if not isinstance(self.data, dict):
            return "its body is empty" if self.data is None else "its body is no JSON object"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.-]{1,40}", name) else "?" for name in keys[:20]]
        return f"it has the keys {', '.join(names)}" if names else "it is an empty JSON object"


def _text(value: Any) -> str:
    """What a field of an error says: itself, or the first of its items, or what stands in it."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and value and not isinstance(value[0], list):
        return _text(value[0])
    fields = lowered(value) or {}
    return next((text for name in _NESTED_WORDS if isinstance(text := fields.get(name), str) and text.strip()), "")


def read_content(response: Response) -> Content:
    """What is in the body of a response, whose content coding (RFC 9110 section 8.4) is not undone."""
    body, problem = _decoded(response.body, response.headers.get("content-encoding", "").lower())
    if problem:
        return Content(problem=problem)
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text:
        return Content()
    with suppress(ValueError, RecursionError):
        return _content(_parsed(body, text))
    is_page = text.startswith("<") or response.headers.get("content-type", "").lower().startswith(PAGE_TYPES)
    if is_page:
        kind = "XML" if text.startswith("<?xml") else "a web page"
        return Content(text, f"{kind} in place of the service's response", is_web_page=True)
    problem = "a body that begins like JSON and is not JSON" if text[0] in "{[" else ""
    if _BINARY.search(text):
        problem = "a body that is neither JSON nor text"
    return _content(text, problem)


def _content(data: Json, problem: str = "") -> Content:
    if not isinstance(data, (dict, list)):
        word = _word(data)
        is_error = data is False or word in _BARE_ERRORS or bool(_ERROR_TEXT.fullmatch(word))
        return Content(data, problem, signs=Signs(says_error=is_error))
    top = whole = lowered(data) or {}
    # An object that is the only field of the top level is the top level itself.
    while len(top) == 1 and (inner := lowered(next(iter(top.values())))):
        top = inner
    places = {"": top}
    for name, below in _PLACES.items():
        found = lowered(top[name] if name in top else whole.get(name))
        if found and below:
            found = lowered(found.get(below))
        if found and found != top:
            places[name] = found
    return Content(data, places=places, signs=_signs_in(whole, places))


def _parsed(body: bytes, text: str) -> Json:
    """The JSON in a body: all of it, JSON that is a string again, or an object behind what a careless service prints first.

    :raises ValueError: if there is none.
    """
    with suppress(ValueError):
        return _unwrapped(_json.decode(text))
    with suppress(ValueError):
        return _unwrapped(json.loads(body, strict=False))  # in UTF-16 or UTF-32
    begin = text.find("{")
    if begin < 0 or text.startswith("<"):
        raise ValueError("no JSON")
    data, end = _json.raw_decode(text, begin)
    if not _PADDING.fullmatch(text, end):
        raise ValueError("no JSON")
    return cast("Json", data)


def _unwrapped(data: Any) -> Json:
    if isinstance(data, str) and data.lstrip().startswith("{"):
        with suppress(ValueError):
            return cast("Json", _json.decode(data))
    return cast("Json", data)


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
