"""What a response holds (an error, a file's id, a download link), and the results that calls make of it.

The API document shows no response, so the usual shapes are understood, and whatever Python's JSON decoder accepts may be an error
envelope.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, cast
from urllib.parse import parse_qs

import pendulum
from pendulum import DateTime

from airflow_provider_cloudstore.protocol.guards import is_nothing
from airflow_provider_cloudstore.protocol.messages import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.secrets import Secret, hides_secret, url_secrets
from airflow_provider_cloudstore.protocol.storable import Json

__all__ = ["DownloadLink", "DownloadedFile", "FolderDeletion", "RemoteUpload"]
"""What users get: the reference lists these."""

_from_json = json.JSONDecoder(strict=False).decode  # careless services send raw line breaks inside strings
_CODINGS = ("gzip", "deflate")
PAGE_TYPES = ("text/html", "application/xhtml")
# How a JSON object says that the operation failed, at its top level.
_STATES = ("_status", "status", "result")
_ERROR_WORD = re.compile(r"error(-.*)?|fail(ed|ure)?|ko|nok", re.DOTALL)
_STATUSES = ("_status", "status", "code")
_ERROR_STATUS = re.compile(r"[45][0-9]{2}(\.0+)?")
_ERRORS = ("error", "errors")
_NO_ERROR = ("", "0", "none", "ok")
_MESSAGES = ("response", "message", "msg", "error", "errors")

_TOKENS = ("download_token", "token")
_URLS = ("download_url", "url")
_URL = re.compile(r"https?://[^\s\\]+", re.IGNORECASE)
_EXPIRIES = ("expires_at", "expires", "expires_in")
_EPOCH_FROM = 100_000_000  # a smaller number would be a date before 1973, so it is seconds from now
_BARE_ID = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[\w.:-]+", re.ASCII)  # neither "OK" nor "1"
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLACEHOLDER = re.compile(r"0+|-[0-9]+")  # what careless services write for nothing


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a response's body.

    :param data: the parsed JSON, the text if it is not JSON, or None if it is empty; it may contain secrets.
    :param problem: why it cannot be the service's own; empty if it can.
    :param is_web_page: whether it is a web page: a login page, a proxy's, or one of the wrong host.
    """

    data: Json = field(repr=False, default=None)
    problem: str = ""
    is_web_page: bool = False

    @property
    def stated_statuses(self) -> list[int]:
        """The HTTP statuses of errors that a JSON object names in ``_status``, ``status`` and ``code``, such as 404."""
        texts = [str(value).strip() for value in self._values(_STATUSES) if isinstance(value, (int, float, str))]
        return [int(text[:3]) for text in texts if _ERROR_STATUS.fullmatch(text)]

    @property
    def is_error(self) -> bool:
        """Whether a JSON object says in a word, a flag or a number that the operation failed, whatever else is in it."""
        flags = self._values((*_STATES, "success", "ok"))
        return (
            bool(self.stated_statuses)
            or any(value is False or _word(value) == "false" for value in flags)
            or any(_ERROR_WORD.fullmatch(_word(value)) for value in self._values(_STATES))
        )

    @property
    def mentions_error(self) -> bool:
        """Whether a JSON object has an ``error`` or ``errors`` that says something: it may be a warning beside a result."""
        return any(_word(value) not in _NO_ERROR if isinstance(value, str) else value for value in self._values(_ERRORS))

    def _values(self, names: tuple[str, ...]) -> list[Any]:
        return [self.data[name] for name in names if name in self.data] if isinstance(self.data, dict) else []

    @property
    def message(self) -> str:
        """The service's human-readable message, with single spaces; empty if there is none."""
        if self.problem:
            return ""
        texts = [self.data, *map(_message, self._values(_MESSAGES))]
        return next((" ".join(text.split()) for text in texts if isinstance(text, str) and text.strip()), "")

    @property
    def keys(self) -> str:
        """The names of its fields, never their values, for an error message."""
        if not isinstance(self.data, dict):
            return "its body is empty" if self.data is None else "its body is no JSON object"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.-]{1,40}", name) else "?" for name in keys[:20]]
        return f"it has the keys {', '.join(names)}" if names else "it is an empty JSON object"


def _word(value: Any) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _message(value: Any) -> Any:
    """What a field of an error says: itself, or the first of its items, or its own ``message``."""
    first = value[0] if isinstance(value, list) and value else value
    return first.get("message") if isinstance(first, dict) else first


def read_content(response: Response) -> Content:
    """Parse the body of a response.

    :param response: the response, its content coding (RFC 9110 section 8.4) not undone.
    """
    body, coding = response.body, response.headers.get("content-encoding", "").lower()
    if body and coding not in ("", "identity"):
        # Here, because before aiohttp 3.14 and urllib3 2.6 a small body could grow to hundreds of MiB.
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of gzip or zlib
        with suppress(zlib.error):
            body = inflater.decompress(body, MAX_BODY_BYTES + 1)
        if len(body) <= MAX_BODY_BYTES and not (coding in _CODINGS and inflater.eof):
            return Content(problem="a body in an unknown content coding, or damaged")
    if len(body) > MAX_BODY_BYTES:
        return Content(problem="a body of more than 1 MiB, which was cut off")
    text = body.decode("utf-8-sig", "replace").strip()
    if not text:
        return Content()
    with suppress(ValueError, RecursionError):
        return Content(_from_json(text))
    if text.startswith("<") or response.headers.get("content-type", "").lower().startswith(PAGE_TYPES):
        return Content(text, "a web page in place of the service's response", is_web_page=True)
    return Content(text, "a body that begins like JSON and is not JSON" if text[0] in "{[" else "")


class _Result:
    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data, dates as ISO 8601 in UTC; a download link with its token. It is what the operators push to XCom."""
        data = {one.name: getattr(self, one.name) for one in fields(cast("Any", self))}
        moments = {name: value for name, value in data.items() if isinstance(value, DateTime)}
        return data | {name: moment.in_timezone("UTC").to_iso8601_string() for name, moment in moments.items()}


@dataclass(frozen=True, slots=True)
class FolderDeletion(_Result):
    """A folder was deleted with its contents.

    :param folder_id: the folder.
    :param requested_at: when the deletion was sent (UTC).
    :param response: the service's response: parsed JSON, text, or None.
    :param existed: False if the folder did not exist; None if unknown: a response was lost, and the next attempt found no folder.
    """

    folder_id: str
    requested_at: DateTime
    response: Json
    existed: bool | None


@dataclass(frozen=True, slots=True)
class RemoteUpload(_Result):
    """An upload was queued: the service fetches the file later.

    :param file_id: the id that the file has or will have; empty if the service's response does not have it.
    :param url: the source URL, redacted.
    :param requested_at: when the upload was sent (UTC).
    :param response: the service's response: parsed JSON, text, or None.
    """

    file_id: str
    url: str
    requested_at: DateTime
    response: Json


@dataclass(frozen=True, slots=True)
class DownloadLink(_Result):
    """A time-limited download token for a file.

    :param file_id: the file.
    :param token: the token. It is a secret: anyone who has it can download the file.
    :param url_with_token: the URL to download from: the service's, or else that of extra ``download_url``; None without either.
        Airflow redacts rendered fields by key name: by this one the URL is hidden in the fields of the tasks that consume it.
    :param created_at: when the response arrived (UTC).
    :param expires_at: when the token expires (UTC), if the response says so.
    """

    file_id: str
    token: str = field(repr=False)
    url_with_token: str | None = field(repr=False)
    created_at: DateTime
    expires_at: DateTime | None

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The token, and the credentials in the URL."""
        return tuple({Secret(self.token), *url_secrets(self.url_with_token or "")})


@dataclass(frozen=True, slots=True)
class DownloadedFile(_Result):
    """A file was downloaded and verified.

    :param file_id: the file.
    :param path: where it is, as specified by the target.
    :param name: the name that its host gave it (``Content-Disposition``), without a path; None if it gave none.
    :param bytes: its size.
    :param sha256: its SHA-256, in hexadecimal.
    """

    file_id: str
    path: str
    name: str | None
    bytes: int
    sha256: str


def find_link(
    file_id: str, response: Response, data: Json, token_path: tuple[str, ...], secrets: Iterable[Secret]
) -> DownloadLink | None:
    """The download link in a response, or None if it contains no token. A token that is a URL is also the URL to download from.

    :param data: the response's parsed body.
    :param token_path: where the token is; empty for the usual places.
    :param secrets: the secrets of the call. A value that repeats one of them is neither a token nor a URL.
    """
    known, created_at = tuple(secrets), pendulum.from_timestamp(response.received)
    candidates = [value_at(data, token_path)] if token_path else _candidates(data)
    token = next((text for text in _texts(candidates, known) if not re.search(r"\s", text)), None)
    if token is None:
        return None
    urls = (text for text in (token, *_texts(_fields(data, *_URLS), known)) if _URL.fullmatch(text))
    return DownloadLink(file_id, token, next(urls, None), created_at, _find_expiry(data, created_at))


def find_file_id(data: Json, file_id_path: tuple[str, ...], secrets: Iterable[Secret]) -> str | None:
    """The id of an uploaded file, or None if the response does not contain it.

    The usual places are ``file_id``, at the top or under ``data``, and a body that is one word with a digit and a letter. A plain
    ``id`` is not used: it may be that of the queue entry.

    :param data: the response's parsed body.
    :param file_id_path: where the id is; empty for the usual places.
    :param secrets: a value that repeats one of them is not an id.
    """
    bare = [data] if isinstance(data, str) and _BARE_ID.fullmatch(data) else []
    candidates = [value_at(data, file_id_path)] if file_id_path else [*_fields(data, "file_id"), *bare]
    return next(_texts(candidates, tuple(secrets)), None)


def _fields(data: Json, *names: str) -> Iterator[Any]:
    """The values of the fields of these names, at the top level and under ``data``."""
    places = (data, data.get("data")) if isinstance(data, dict) else ()
    for name in names:
        yield from (place[name] for place in places if isinstance(place, dict) and name in place)


def value_at(data: Json, path: tuple[str, ...]) -> Any:
    """The value at a path of keys and positions; None if there is none."""
    value: Any = data
    for key in path:
        if isinstance(value, list):
            value = value[int(key)] if re.fullmatch("[0-9]{1,6}", key) and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _texts(values: Iterable[Any], secrets: tuple[Secret, ...]) -> Iterator[str]:
    """Those that say something, as text: neither zero nor a word for nothing, such as ``null``, and no secret of the call."""
    for value in values:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or _CONTROLS.search(text) or is_nothing(text) or _PLACEHOLDER.fullmatch(text):
            continue
        if not hides_secret(text, secrets):
            yield text


def _candidates(data: Json) -> Iterator[Any]:
    """What may be the token, most likely first."""
    yield from _fields(data, *_TOKENS)
    yield from map(_token_in_query, _fields(data, *_URLS))
    yield data


def _token_in_query(url: Any) -> str | None:
    query = url.partition("?")[2].partition("#")[0] if isinstance(url, str) else ""
    # A token has no space, so a plus sign is one that the service forgot to encode.
    values = parse_qs(query.replace("+", "%2B"))
    return next((values[name][0] for name in _TOKENS if name in values), None)


def _find_expiry(data: Json, created_at: DateTime) -> DateTime | None:
    moments = (_moment(value, name, created_at) for name in _EXPIRIES for value in _fields(data, name))
    return next(filter(None, moments), None)


def _moment(value: Any, name: str, created_at: DateTime) -> DateTime | None:
    """A date of ISO 8601, in UTC if it names no zone, or seconds: since 1970, or from now."""
    is_relative = name == "expires_in"
    with suppress(ValueError, TypeError, OverflowError, OSError):  # not a date, or one out of range
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return None if is_relative else pendulum.instance(datetime.fromisoformat(value), tz="UTC").in_timezone("UTC")
        seconds = float("nan" if isinstance(value, bool) else value)
        if is_relative or seconds < _EPOCH_FROM:
            return created_at.add(seconds=seconds)
        return pendulum.from_timestamp(seconds, tz="UTC")
    return None
