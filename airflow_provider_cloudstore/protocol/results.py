"""What users get of a response, and where a file's id, a download token, its URL and its expiry are found in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import parse_qs

import pendulum
from pendulum import UTC, DateTime

from airflow_provider_cloudstore.protocol.contents import Content
from airflow_provider_cloudstore.protocol.guards import is_nothing
from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.secrets import Secret, hides_secret, url_secrets
from airflow_provider_cloudstore.protocol.storable import Json

__all__ = ["DownloadLink", "DownloadedFile", "FolderDeletion", "RemoteUpload"]
"""What users get: the reference lists these."""

# Names of fields, in lower case.
_IDS = ("file_id", "fileid")
_TOKENS = ("download_token", "token")
_URLS = ("download_url", "downloadurl", "url", "link", "href")
_URL = re.compile(r"https?://[^\s\\]+", re.IGNORECASE)
_STATES = ("_status", "status", "state", "result")
_PENDING = (
    "pending", "queued", "in_queue", "processing", "in_progress", "preparing", "waiting", "scheduled", "submitted", "accepted",
    "started", "running", "fetching", "downloading", "uploading", "transferring", "converting", "incomplete", "not_ready",
    "unavailable",
)  # fmt: skip
_READY_FLAGS = ("ready", "is_ready", "isready", "available", "is_available", "isavailable", "completed", "finished")
# Without underscores.
_EXPIRIES = (
    "expiresat", "expires", "expireat", "expire", "expiry", "expirydate", "expirytime", "expiration", "expirationdate",
    "expirationtime", "expiretime", "expirestime", "expireson", "validuntil", "validto",
)  # fmt: skip
_LIFETIMES = ("expiresin", "expirein", "ttl", "ttlseconds", "lifetime", "validfor")
_EPOCH_FROM = 100_000_000  # a smaller number would be a date before 1973, so it is seconds from now
_MILLISECONDS_FROM = 100_000_000_000  # as seconds, a date after the year 5138
_BARE_ID = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[\w.:-]+", re.ASCII)  # neither "OK" nor "1"
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_BARE_TOKEN = re.compile(r"[\w.~+/=:|%@$*!-]+", re.ASCII)
_UNLIKE_A_TOKEN = re.compile(r".*\s.*|\W+|[0-9]{1,3}", re.DOTALL)
# What careless services write in a token's place, without underscores and hyphens.
_NO_TOKENS = frozenset(
    (*(state.replace("_", "") for state in _PENDING), "true", "ok", "success", "no", "ko", "error", "fail", "failed", "expired",
     "invalid", "invalidtoken", "missing", "notfound", "denied", "accessdenied", "forbidden", "unauthorized", "unauthenticated",
     "login")
)  # fmt: skip
_EMPTY_TOKEN = re.compile(r"[?&](?:download_)?token=(?:null|none|undefined)?(?:[&#]|$)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"0+|-[0-9]+")  # what careless services write for nothing


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


def moment(timestamp: float) -> DateTime:
    """A Unix time as a date in UTC. Pendulum's own conversions take six times as long, and a batch needs one for each URL."""
    at = datetime.fromtimestamp(timestamp, UTC)
    return DateTime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, UTC)


def find_link(
    file_id: str,
    response: Response,
    content: Content,
    token_path: tuple[str, ...],
    secrets: tuple[Secret, ...],
    *,
    trusts_urls: bool = True,
) -> DownloadLink | None:
    """The download link in a response, or None if it contains no token.

    :param token_path: where the token is; empty for the usual places.
    :param secrets: the secrets of the call. A value that repeats one of them is neither a token nor a URL.
    :param trusts_urls: whether a URL is a token, too, where there is no other.
    """
    created_at = moment(response.received)
    candidates = [value_at(content.data, token_path)] if token_path else _candidates(content, trusts_urls=trusts_urls)
    token = next((text for text in _texts(candidates, secrets) if _may_be_token(text)), None)
    if token is None:
        return None
    urls = (text for text in (token, *_texts(content.values(_URLS), secrets)) if _URL.fullmatch(text))
    return DownloadLink(file_id, token, next(urls, None), created_at, _find_expiry(content, created_at))


def _may_be_token(text: str) -> bool:
    word = text.lower().replace("_", "").replace("-", "")
    return not _UNLIKE_A_TOKEN.fullmatch(text) and word not in _NO_TOKENS


def find_file_id(content: Content, file_id_path: tuple[str, ...], secrets: tuple[Secret, ...]) -> str | None:
    """The id of an uploaded file, or None if the response does not contain it.

    The usual places, where ``file_id_path`` is empty, are ``file_id``, and a body that is one word with a digit and a letter. A
    plain ``id`` is not used: it may be that of the queue entry. Nor is a value that repeats one of ``secrets``.
    """
    data = content.data
    bare = [data] if isinstance(data, str) and _BARE_ID.fullmatch(data) else []
    candidates = [value_at(data, file_id_path)] if file_id_path else [*content.values(_IDS), *bare]
    return next(_texts(candidates, secrets), None)


def is_pending(content: Content) -> bool:
    """Whether a state or a flag says that the service is still working."""
    states = [content.data] if isinstance(content.data, str) else content.values(_STATES)
    return any(_state(state) in _PENDING for state in states) or any(flag is False for flag in content.values(_READY_FLAGS))


def _state(value: Any) -> str:
    return re.sub(r"[\s-]+", "_", str(value).strip(" .").lower())


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


def _candidates(content: Content, *, trusts_urls: bool) -> Iterator[Any]:
    """What may be the token, most likely first."""
    yield from content.values(_TOKENS)
    urls = list(content.values(_URLS))
    yield from map(_token_in_query, urls)
    if trusts_urls and not is_pending(content):
        yield from (url for url in urls if isinstance(url, str) and _URL.fullmatch(url) and not _EMPTY_TOKEN.search(url))
    data = content.data
    if isinstance(data, str) and (_BARE_TOKEN.fullmatch(data) or _URL.fullmatch(data)):
        yield data


def _token_in_query(url: Any) -> str | None:
    query = url.partition("?")[2].partition("#")[0] if isinstance(url, str) else ""
    # A token has no space, so a plus sign is one that the service forgot to encode.
    values = parse_qs(query.replace("+", "%2B"))
    return next((values[name][0] for name in _TOKENS if name in values), None)


def _find_expiry(content: Content, created_at: DateTime) -> DateTime | None:
    named = [(name.replace("_", ""), value) for place in content.places.values() for name, value in place.items()]
    found = [(name, value) for name, value in named if name in _EXPIRIES] + [one for one in named if one[0] in _LIFETIMES]
    moments = (_moment(value, created_at, is_lifetime=name in _LIFETIMES) for name, value in found)
    return next(filter(None, moments), None)


def _moment(value: Any, created_at: DateTime, *, is_lifetime: bool) -> DateTime | None:
    """A date of ISO 8601 or RFC 1123, in UTC if it names no zone; or seconds or milliseconds since 1970, or seconds from now."""
    with suppress(ValueError, TypeError, OverflowError, OSError):  # not a date, or one out of range
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return None if is_lifetime else pendulum.instance(_date(value), tz="UTC").in_timezone("UTC")
        seconds = float("nan" if isinstance(value, bool) else value)
        if is_lifetime or seconds < _EPOCH_FROM:
            return created_at.add(seconds=seconds)
        return moment(seconds / 1000 if seconds > _MILLISECONDS_FROM else seconds)
    return None


def _date(text: str) -> datetime:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return parsedate_to_datetime(text)
