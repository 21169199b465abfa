"""Results of calls, and where responses hold them. The API document shows no response, so the usual shapes are all understood."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import pendulum
from pendulum import DateTime

from airflow_provider_cloudstore.protocol.guards import is_nothing
from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.secrets import Secret, hides_secret, url_secrets
from airflow_provider_cloudstore.protocol.storable import Json

log = logging.getLogger(__name__)

_TOKEN_NAMES = ("download_token", "token")
_URL_NAMES = ("download_url", "url")
_EXPIRY_NAMES = ("expires_at", "expires", "expires_in")
_BARE_ID = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z_-])[\w.:-]{1,256}", re.ASCII)  # neither "OK" nor "1"
_ID = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_NO_ID = re.compile(r"0+|-[0-9]+")  # what careless services write for nothing
_MAX_TOKEN_LENGTH = 4096
_TOKEN = re.compile('[^\\s<>"{}\\\\\x00-\x20\x7f-\xa0\ud800-\udfff\ufffd]+')
_URL = re.compile(r"https?://[^\s\\\x00-\x20\x7f-\xa0\ud800-\udfff]+", re.IGNORECASE)
_MAX_URL_LENGTH = 8192
_MAX_DATE_LENGTH = 64
_EPOCH_FROM = 100_000_000  # a smaller number would be a date before 1973, so it is seconds from now
_MILLISECONDS_FROM = 100_000_000_000


class _Result:
    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data, dates as ISO 8601 in UTC; a download link with its token. It is what the operators push to XCom."""
        values = {one.name: getattr(self, one.name) for one in fields(cast("Any", self))}
        return {name: _iso(value) if isinstance(value, DateTime) else value for name, value in values.items()}


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
    :param url_with_token: the URL to download from, where the service gives one. Airflow redacts rendered fields by key
        name: by this one the URL is hidden in the fields of the tasks that consume it.
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
    :param bytes: its size.
    :param sha256: its SHA-256, in hexadecimal.
    """

    file_id: str
    path: str
    bytes: int
    sha256: str


def _iso(moment: DateTime) -> str:
    return moment.in_timezone("UTC").to_iso8601_string()


def find_link(
    file_id: str, response: Response, data: Json, token_path: tuple[str, ...], secrets: Iterable[Secret]
) -> DownloadLink | None:
    """The download link in a response, or None if it contains no token. A token that is a URL is also the URL to download from.

    :param data: the response's parsed body.
    :param token_path: where the token is; empty for the usual places.
    :param secrets: the secrets of the call. A value that repeats one of them, also encoded, is not a token.
    """
    known = tuple(secrets)
    candidates = [_at(data, token_path)] if token_path else _candidates(data)
    tokens = (token for value in candidates if (token := _as_token(value)) and not hides_secret(token, known))
    token = next(tokens, None)
    if token is None:
        return None
    urls = [*([token] if _URL.fullmatch(token) else []), *_fields(data, _URL_NAMES)]
    url = next((value for value in urls if _is_public_url(value, known)), None)
    if urls and url is None:
        log.warning(
            "Ignored the download URL of file '%s': it is not an absolute http(s) URL, or it repeats a credential",
            file_id,
        )
    return DownloadLink(file_id, token, url, response.received_at, _find_expiry(data, response.received_at))


def find_file_id(data: Json, file_id_path: tuple[str, ...], secrets: Iterable[Secret]) -> str | None:
    """The id of an uploaded file, or None if the response does not contain it.

    The usual places are ``file_id``, at the top or under ``data``, and a body that is a single line with a digit and a letter. A
    plain ``id`` is not used: it may be that of the queue entry.

    :param data: the response's parsed body.
    :param file_id_path: where the id is; empty for the usual places.
    :param secrets: a value that repeats one of them, also encoded, is not an id.
    """
    if file_id_path:
        candidates = [_at(data, file_id_path)]
    else:
        bare = data if isinstance(data, str) and _BARE_ID.fullmatch(data) else None
        candidates = [*_fields(data, ("file_id",)), bare]
    known = tuple(secrets)
    ids = (text for value in candidates if (text := _as_id(value)))
    return next((text for text in ids if not hides_secret(text, known)), None)


def _is_public_url(value: Any, secrets: tuple[Secret, ...]) -> bool:
    """Whether ``value`` is an absolute URL without credentials of the call."""
    if not isinstance(value, str) or len(value) > _MAX_URL_LENGTH or not _URL.fullmatch(value):
        return False
    try:
        return bool(urlsplit(value).hostname) and not hides_secret(value, secrets)
    except ValueError:
        return False


def _fields(body: Json, names: tuple[str, ...]) -> Iterator[Any]:
    """The values of the fields of these names, at the top level and under ``data``."""
    places = (body, body.get("data")) if isinstance(body, dict) else ()
    for name in names:
        for place in places:
            if isinstance(place, dict) and place.get(name) is not None:
                yield place[name]


def _as_id(value: Any) -> str | None:
    """``value`` as text if it says something: neither zero nor a word for nothing, such as ``null``."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or len(text) > _MAX_TOKEN_LENGTH or not _ID.fullmatch(text):
        return None
    return None if is_nothing(text) or _NO_ID.fullmatch(text) else text


def _as_token(value: Any) -> str | None:
    """The same if it can be a token: without spaces, and neither markup nor broken JSON."""
    text = _as_id(value)
    return text if text and _TOKEN.fullmatch(text) else None


def _at(body: Json, path: tuple[str, ...]) -> Any:
    value: Any = body
    for key in path:
        if isinstance(value, list) and re.fullmatch(r"\d{1,6}", key, re.ASCII):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _candidates(body: Json) -> Iterator[Any]:
    """What may be the token, most likely first."""
    yield from _fields(body, _TOKEN_NAMES)
    yield from map(_token_in_query, _fields(body, _URL_NAMES))
    yield body


def _token_in_query(url: Any) -> str | None:
    if not isinstance(url, str):
        return None
    pairs = [pair.partition("=") for pair in url.partition("?")[2].partition("#")[0].split("&")]
    # Not unquote_plus: a token has no space, so a plus sign is one that the service forgot to encode.
    return next((unquote(value) for name in _TOKEN_NAMES for key, _, value in pairs if unquote(key) == name and value), None)


def _find_expiry(body: Json, received_at: DateTime) -> DateTime | None:
    values = ((name, value) for name in _EXPIRY_NAMES for value in _fields(body, (name,)))
    moments = (_moment(value, received_at, relative=name == "expires_in") for name, value in values)
    return next((moment for moment in moments if moment is not None), None)


def _moment(value: Any, received_at: DateTime, *, relative: bool) -> DateTime | None:
    if isinstance(value, bool) or (isinstance(value, str) and len(value) > _MAX_DATE_LENGTH):
        return None
    try:
        if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
            parsed = None if relative or not value[:1].isdigit() else pendulum.parse(value, tz="UTC", now=received_at)
            return parsed.in_timezone("UTC") if isinstance(parsed, DateTime) else None
        number = float(value)
        if relative or number < _EPOCH_FROM:
            return received_at.add(seconds=number)
        return pendulum.from_timestamp(number / 1000 if number >= _MILLISECONDS_FROM else number, tz="UTC")
    except (ValueError, TypeError, OverflowError, OSError):  # not a date, or one out of range
        return None
