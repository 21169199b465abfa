"""What must come of a call, derived from docs/failures.md and docs/responses.md alone: it shares no code with what it judges.

Where the promise leaves a choice, more than one end is right; a response that is whole and well-formed mostly has one.
"""

from __future__ import annotations

import base64
import html
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus

from tests.differential.responses import MIB, Framing, RawResponse
from tests.differential.secret_forms import ACCESS_TOKEN

DELETE, UPLOAD, LINK = "delete", "upload", "link"


class Meaning(Enum):
    """What one response says."""

    DONE = auto()
    SAYS_ERROR = auto()
    NOT_THE_SERVICES = auto()
    RATE_LIMITED = auto()
    RATE_LIMITED_FOR_LONG = auto()
    FAILED = auto()
    """Lost, cut, HTTP 5xx: sent, and the outcome is unknown."""
    FAILED_FOR_LONG = auto()
    """HTTP 5xx that asks for a long pause."""
    UNAUTHORIZED = auto()
    PROXY = auto()
    REFUSED = auto()
    GONE = auto()
    """HTTP 404 or 410."""
    GONE_SAYS_A_PAGE = auto()


ANY_TOKEN = "<any>"
"""Stands for a token that the promise does not fix."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one response means, to whom it matters: the token is for links only."""

    meaning: Meaning
    status: int | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a call may end.

    :param error: the error's name; None for a result.
    :param requests: how many requests were sent.
    :param token: a link's token; :data:`ANY_TOKEN` where any will do.
    :param status: the error's HTTP status.
    """

    error: str | None
    requests: int
    permanent: bool = False
    token: str | None = None
    status: int | None = None


_PERMANENT = {
    "OutcomeUnknownError",
    "AuthenticationError",
    "ConfigurationError",
    "RedirectError",
    "BadRequestError",
    "PermissionDeniedError",
    "NotFoundError",
    "MethodNotAllowedError",
    "RequestRejectedError",
}


def ends(operation: str, responses: Sequence[RawResponse], max_attempts: int) -> set[End]:
    """Every right end of a call.

    :param operation: which one.
    :param responses: the response to the first request, the second, ...; the last one is repeated.
    :param max_attempts: how many requests a call may send.
    """
    in_turn = [responses[min(number, len(responses) - 1)] for number in range(max_attempts)]
    found: set[End] = set()
    # A repeated response means the same thing each time; what is ambiguous is ambiguous in each.
    for chosen in itertools.product(*(readings(operation, response) for response in in_turn)):
        found.add(_end(operation, chosen))
    return found


def _end(operation: str, chosen: Sequence[Reading]) -> End:
    may_have_worked = False
    for number, reading in enumerate(chosen, 1):
        meaning, last = reading.meaning, number == len(chosen)
        if meaning is Meaning.DONE:
            if operation == LINK and reading.token is None:
                return _error("InvalidResponseError", number, reading)
            return End(None, number, token=reading.token if operation == LINK else None)
        if meaning is Meaning.GONE and operation == DELETE and may_have_worked:
            return End(None, number)
        failed = meaning in (Meaning.FAILED, Meaning.FAILED_FOR_LONG)
        failed = failed or (meaning is Meaning.NOT_THE_SERVICES and operation == UPLOAD)
        if failed and operation == UPLOAD:
            return _error("OutcomeUnknownError", number, reading)
        may_have_worked |= failed
        if last or meaning not in (Meaning.FAILED, Meaning.RATE_LIMITED):
            return _error(_name(reading), number, reading)
    raise AssertionError("no attempt is left")


def _name(reading: Reading) -> str:
    by_status = {
        400: "BadRequestError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        410: "NotFoundError",
        405: "MethodNotAllowedError",
    }
    by_meaning = {
        Meaning.SAYS_ERROR: "ServiceError",
        Meaning.NOT_THE_SERVICES: "InvalidResponseError",
        Meaning.RATE_LIMITED: "RateLimitError",
        Meaning.RATE_LIMITED_FOR_LONG: "RateLimitError",
        Meaning.FAILED: "TransientServiceError",
        Meaning.FAILED_FOR_LONG: "TransientServiceError",
        Meaning.UNAUTHORIZED: "AuthenticationError",
        Meaning.PROXY: "ConfigurationError",
    }
    if reading.meaning in by_meaning:
        return by_meaning[reading.meaning]
    status = reading.status or 0
    return "RedirectError" if 300 <= status < 400 else by_status.get(status, "RequestRejectedError")


def _error(name: str, requests: int, reading: Reading) -> End:
    return End(name, requests, name in _PERMANENT, status=reading.status)


def readings(operation: str, response: RawResponse) -> set[Reading]:
    """What a response can be taken to say.

    :param operation: of which it is the response.
    :param response: the response.
    """
    lost = Reading(Meaning.FAILED)
    if response.framing is Framing.WHOLE:
        return _of_whole(operation, response.status, dict(response.headers), response.body)
    if response.framing is Framing.LOST:
        if 200 <= response.status < 300 and len(response.body) <= MIB:
            return {lost}
        return {lost, *_of_whole(operation, response.status, dict(response.headers), response.body)}
    found = {lost, Reading(Meaning.FAILED, response.status)}
    for body in {response.body, *response.readings}:
        for headers in _header_sets(response):
            found |= _of_whole(operation, response.status, headers, body)
    return found


def _header_sets(response: RawResponse) -> Iterator[dict[str, str]]:
    yield {}
    yield dict(response.headers)
    yield dict(reversed(response.headers))  # of a repeated one the first


def _of_whole(operation: str, status: int, headers: dict[str, str], body: bytes) -> set[Reading]:
    if 200 <= status < 300:
        return {Reading(meaning, status, token) for meaning, token in _said(operation, headers, body)}
    if status == 429 or (status == 503 and _TIME_TO_COME.fullmatch(headers.get("retry-after", ""))):
        return {Reading(meaning, status) for meaning in _pause(headers.get("retry-after"))}
    if status in (404, 410):
        texts = {text for text, _ in _texts(headers, body)}
        page = any(_is_page(headers, text) is not False for text in texts)
        return {Reading(Meaning.GONE, status)} | ({Reading(Meaning.GONE_SAYS_A_PAGE, status)} if page else set())
    fixed = {401: Meaning.UNAUTHORIZED, 407: Meaning.PROXY}
    if status in fixed:
        return {Reading(fixed[status], status)}
    if 300 <= status < 500:
        return {Reading(Meaning.REFUSED, status)}
    pauses = {Meaning.RATE_LIMITED: Meaning.FAILED, Meaning.RATE_LIMITED_FOR_LONG: Meaning.FAILED_FOR_LONG}
    return {Reading(pauses[meaning], status) for meaning in _pause(headers.get("retry-after"))}


_TIME_TO_COME = re.compile(r"[0-9]+|.* 2100 .* GMT")
"""Whole seconds or a date to come (RFC 9110 section 10.2.3), of those that the responses have."""


def _pause(value: str | None) -> set[Meaning]:
    if value is None or value in ("0", "1", "7", "120") or value == "Wed, 21 Oct 2015 07:28:00 GMT":
        return {Meaning.RATE_LIMITED}
    if value in ("86400", "999999999") or " 2100 " in value:
        return {Meaning.RATE_LIMITED_FOR_LONG}
    return {Meaning.RATE_LIMITED, Meaning.RATE_LIMITED_FOR_LONG}


_NOT_ITS: tuple[Meaning, str | None] = (Meaning.NOT_THE_SERVICES, None)


def _said(operation: str, headers: dict[str, str], body: bytes) -> set[tuple[Meaning, str | None]]:
    """What HTTP 2xx says: its meaning, and for a link the token."""
    found: set[tuple[Meaning, str | None]] = set()
    if len(body) > MIB:
        return {_NOT_ITS}
    for text, sure in _texts(headers, body):
        found |= {_NOT_ITS} if text is None else _of_text(operation, headers, text)
        found |= set() if sure else {_NOT_ITS}
    return found


def _texts(headers: dict[str, str], body: bytes) -> list[tuple[str | None, bool]]:
    """The texts that a body can be, each with whether it may be refused as well; None for one that cannot be decoded."""
    codings = [coding.strip().lower() for coding in headers.get("content-encoding", "").split(",")]
    if len(codings) > 1 and not body:  # nothing, encoded
        return [(None, True), ("", True)]
    if len(codings) > 1:
        plain = _unpack(_unpack(body, "gzip"), "gzip") if codings == ["gzip", "gzip"] else _unpack(body, "gzip")
        return [(None, True), (_decode(headers, plain), True)] if plain is not None else [(None, True)]
    if codings[0] in ("", "identity"):
        return [(_decode(headers, body), True)]
    if codings[0] not in ("gzip", "x-gzip", "deflate"):
        return [(None, True)] if body else [(None, True), ("", True)]
    plain = _unpack(body, codings[0])
    if plain is None or len(plain) > MIB:
        return [(None, True), ("", True)] if not body else [(None, True)]  # nothing, encoded: empty, or cut off
    return [(_decode(headers, plain), body.endswith(b"junk") is False)]


def _unpack(body: bytes | None, coding: str) -> bytes | None:
    for bits in (15, -15) if coding == "deflate" else (31,):
        unpacker = zlib.decompressobj(bits)
        try:
            plain = unpacker.decompress(body or b"", MIB + 1)
        except zlib.error:
            continue
        if unpacker.eof or len(plain) > MIB:
            return plain
    return None


_LATIN, _WINDOWS = {"iso-8859-1", "latin-1", "latin1"}, {"windows-1252", "cp1252"}


def _decode(headers: dict[str, str], body: bytes) -> str:
    label = re.search(r';\s*charset=("?)([^";]*)\1', headers.get("content-type", ""), re.IGNORECASE)
    name = label.group(2).strip().lower() if label and not body.startswith(b"\xef\xbb\xbf") else ""  # the mark says UTF-8
    if name in _LATIN:
        return body.decode("iso-8859-1")
    if name in _WINDOWS:
        return body.decode("windows-1252", "replace")
    text = body.decode("utf-8", "replace")  # US-ASCII is a part of it
    return text.removeprefix("\ufeff")


def _is_page(headers: dict[str, str], text: str | None) -> bool | None:
    """Whether a body is a web page; None where that can be seen either way."""
    start = (text or "").lstrip("\ufeff \t\r\n").lower()
    if start.startswith(("<!doctype html", "<html")):
        return True
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        if start.startswith(("{", "[")):
            return False
        return None if not start or kind != "text/html" or _scalar((text or "").strip()) else True
    return None if start.startswith("<") else False


def _scalar(text: str) -> bool:
    try:
        return not isinstance(_loads(text), (dict, list))
    except ValueError:
        return False


def _loads(text: str, *, strict: bool = True) -> Any:
    def number(digits: str) -> int:
        return int(digits) if len(digits) < 4000 else 0

    return json.loads(text, parse_int=number, strict=strict)


def _of_text(operation: str, headers: dict[str, str], text: str) -> set[tuple[Meaning, str | None]]:
    if sum(map(text.count, ",[{")) > 100_000:
        return {_NOT_ITS}
    start = text.lstrip("\ufeff \t\r\n")
    page = _is_page(headers, text)
    if page:
        return {_NOT_ITS}
    found: set[tuple[Meaning, str | None]] = set() if page is False else {_NOT_ITS}
    if start[:1] in ("{", "["):
        return found | _of_json(operation, start)
    if start.lstrip("\ufeff\0 \t\r\n")[:1] in ("{", "["):  # behind a NUL, as of UTF-16: it may count as beginning like JSON
        found.add(_NOT_ITS)
    return found | {(Meaning.DONE, token) for token in (_bare_tokens(text) if operation == LINK else {None})}


def _of_json(operation: str, text: str) -> set[tuple[Meaning, str | None]]:
    try:
        document = _loads(text)
    except RecursionError:  # Python's own limit: whether such a document can be read is not promised, but it is never a success
        return {_NOT_ITS, (Meaning.SAYS_ERROR, None)} if '"error"' in text[:30] else {_NOT_ITS, (Meaning.DONE, None)}
    except ValueError:
        try:
            document = _loads(text.rstrip("\0 \t\r\n"), strict=False)  # a raw control character inside a string, NUL at the end
        except (ValueError, RecursionError):
            return {_NOT_ITS}
        return {_NOT_ITS, *_of_document(operation, document)}
    too_deep = text.count("[") + text.count("{") > 700
    return _of_document(operation, document) | ({_NOT_ITS} if too_deep else set())


def _of_document(operation: str, document: Any) -> set[tuple[Meaning, str | None]]:
    if isinstance(document, dict):
        for key in ("_status", "status"):
            said = document.get(key)
            if isinstance(said, str) and said.strip().lower() == "error":
                return {(Meaning.SAYS_ERROR, None)}
    if operation != LINK:
        return {(Meaning.DONE, None)}
    return {(Meaning.DONE, token) for token in _tokens(document)}


def _tokens(document: Any) -> set[str | None]:
    """The tokens that a document can be taken to hold; None: it holds none."""
    if not isinstance(document, dict):
        return {None}
    data = document.get("data")
    places = [document, data] if isinstance(data, dict) else [document]
    named = [place[key] for place in places for key in ("download_token", "token") if key in place]
    urls = [place[key] for place in places for key in ("download_url", "url") if isinstance(place.get(key), str)]
    in_urls = [value for url in urls for value in _in_query(url)]
    odd_urls = any(not re.fullmatch(r"https?://[a-z0-9.]+/[!-~]*", url) or holds_access_token(url) for url in urls)
    found: set[str | None] = set()
    for tier in (named, in_urls):
        good, refused = _judged(tier)
        found |= good
        if good and not refused and not (tier is in_urls and odd_urls):
            return found
    return found | {None}


def _in_query(url: str) -> list[str]:
    pairs = dict(parse_qsl(url.partition("?")[2].partition("#")[0]))
    return [pairs[name] for name in ("download_token", "token") if name in pairs]


def _judged(candidates: Iterable[Any]) -> tuple[set[str | None], bool]:
    """The good tokens among some, and whether any was none."""
    good: set[str | None] = set()
    refused = False
    for one in candidates:
        if isinstance(one, str) and one.strip() and not holds_access_token(one):
            clean = one.isprintable() and not re.search(r'[\s<>"{}\\]', one)  # nor markup
            good.add(one if clean else ANY_TOKEN)
            refused |= not clean
        elif isinstance(one, (int, float)) and not isinstance(one, bool):
            good.add(ANY_TOKEN)
            refused = True
        else:
            refused = True
    return good, refused


def _bare_tokens(text: str) -> set[str | None]:
    line = text.strip("\ufeff \t\r\n")
    if line.endswith("\0"):  # whether it belongs to the line
        return {None} | _bare_tokens(line.rstrip("\0"))
    if not line or holds_access_token(line):
        return {None}
    if len(line.splitlines()) > 1 or any(not letter.isprintable() or letter == "\ufffd" for letter in line):
        return {None}
    if _scalar(line) or re.search(r"\s|<", line) or len(line) > 1000 or not line.isascii():
        return {None, ANY_TOKEN}
    return {line}


def holds_access_token(text: str) -> bool:
    """Whether a text is, or visibly holds, the access token, also when its encoding is undone."""
    if ACCESS_TOKEN in text:
        return True
    if len(text) > 5000:
        return False
    seen, ahead = {text}, [text]
    for _ in range(4):
        ahead = [plain for one in ahead for plain in _undone(one) if plain not in seen]
        seen.update(ahead)
    return any(ACCESS_TOKEN in one for one in seen)


def _undone(text: str) -> Iterator[str]:
    yield unquote(text)
    yield unquote_plus(text)
    yield html.unescape(text)
    yield re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found.group(1), 16)), text).replace("\\/", "/")
    if "\\x" in text:
        escaped = re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found.group(1), 16)), text)
        yield escaped.encode("latin-1", "replace").decode("utf-8", "replace")
    with_padding = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    for alphabet in (b"+/", b"-_"):
        with suppress(ValueError):
            yield base64.b64decode(with_padding, alphabet, validate=True).decode()
    with suppress(ValueError):
        yield bytes.fromhex(text).decode()


_KEYS_WITH_A_MEANING = {"__id__", "__classname__", "__version__", "__data__", "__type", "__var"}
"""Of Airflow's serializers: ``airflow.sdk.serde`` and, before 3, ``airflow.serialization.serde``."""


def why_not_storable(value: Any) -> str | None:
    """Why a value is not plain data that every database and every serializer gives back unchanged, if it is not."""
    ahead = [(value, 0)]
    while ahead:
        one, depth = ahead.pop()
        if depth > 200:
            return "deeper than 200 levels"
        if isinstance(one, dict):
            ahead += [(inner, depth + 1) for pair in one.items() for inner in pair]
            if wrong := _KEYS_WITH_A_MEANING & one.keys():
                return f"the key {wrong}"
        elif isinstance(one, list):
            ahead += [(inner, depth + 1) for inner in one]
        elif why := _why_not_scalar(one):
            return why
    return None


def _why_not_scalar(value: Any) -> str | None:
    if isinstance(value, str):
        return f"the text {value[:40]!r}" if re.search("[\x00\ud800-\udfff]", value) else None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"the number {value}"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else f"the number {value}"
    return None if value is None else f"a {type(value).__name__}"


def tame_document(response: RawResponse) -> Any:
    """The JSON that a result has to hold, without credentials; None where there is none or it is not quite plain."""
    headers = dict(response.headers)
    if response.framing is not Framing.WHOLE or not 200 <= response.status < 300 or len(response.body) > 2000:
        return None
    texts = _texts(headers, response.body)
    text = texts[0][0] if len(texts) == 1 else None
    if text is None or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        document = _loads(text.strip())
    except (ValueError, RecursionError):
        return None
    return _without_credentials(document) if why_not_storable(document) is None and _plain(document, 6) else None


_NAMES_OF_CREDENTIALS = ("token", "tokens", "password", "secret", "signature", "api_key")


def _without_credentials(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_credentials(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"([?&](?:download_)?token=)[^&#]+", r"\1***", value)
    if not isinstance(value, dict):
        return value
    return {
        name: "***"
        if name.lower().endswith(_NAMES_OF_CREDENTIALS) and inner is not None and not isinstance(inner, bool)
        else _without_credentials(inner)
        for name, inner in value.items()
    }


def _plain(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return levels > 0 and all(not key.startswith("__") and _plain(inner, levels - 1) for key, inner in value.items())
    return not isinstance(value, list) or (levels > 0 and all(_plain(inner, levels - 1) for inner in value))
