"""What an answer says. The API document shows none, so everything that such services really answer is understood."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pendulum
from pendulum import DateTime

from airflow_provider_cloudstore.protocol.secrets import Secret, url_secrets
from airflow_provider_cloudstore.protocol.values import Response

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

_TOKEN_NAMES = ("download_token", "token")
_URL_NAMES = ("download_url", "url")
_EXPIRY_NAMES = ("expires_at", "expires", "expires_in")
_LONGEST_TOKEN = 4096
_EPOCH_FROM = 100_000_000  # a smaller number cannot be a date since 1973, so it counts seconds from now
_MILLISECONDS_FROM = 100_000_000_000


@dataclass(frozen=True, slots=True)
class FolderDeletion:
    """A folder is deleted, with everything in it.

    :param folder_id: the folder.
    :param requested_at: when the deletion was sent (UTC).
    :param response: the service's answer: parsed JSON, text, or None.
    """

    folder_id: str
    requested_at: DateTime
    response: Json

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; the XCom of ``DeleteFolderOperator``."""
        return {"folder_id": self.folder_id, "requested_at": _iso(self.requested_at), "response": self.response}


@dataclass(frozen=True, slots=True)
class RemoteUpload:
    """An upload is queued: the service fetches the file later.

    :param url: the source URL, redacted.
    :param requested_at: when the upload was sent (UTC).
    :param response: the service's answer: parsed JSON, text, or None.
    """

    url: str
    requested_at: DateTime
    response: Json

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; the XCom of ``RemoteUrlUploadOperator``."""
        return {"url": self.url, "requested_at": _iso(self.requested_at), "response": self.response}


@dataclass(frozen=True, slots=True)
class DownloadLink:
    """A time-limited download token for a file.

    :param file_id: the file.
    :param token: the token. It is a secret: whoever has it can download the file.
    :param url_with_token: the URL to download from, where the service gives one. Airflow redacts rendered fields by key
        name: by this one the URL is hidden in the fields of the tasks that consume it.
    :param created_at: when the answer came (UTC).
    :param expires_at: when the token ends (UTC), where the service says so.
    """

    file_id: str
    token: str = field(repr=False)
    url_with_token: str | None = field(repr=False)
    created_at: DateTime
    expires_at: DateTime | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, token included; the XCom ``download_link`` of ``DownloadLinkOperator``."""
        return {
            "file_id": self.file_id,
            "token": self.token,
            "url_with_token": self.url_with_token,
            "created_at": _iso(self.created_at),
            "expires_at": _iso(self.expires_at) if self.expires_at else None,
        }

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What of it must not be printed."""
        return tuple({Secret(self.token), *url_secrets(self.url_with_token or "")})


def _iso(moment: DateTime) -> str:
    return moment.in_timezone("UTC").to_iso8601_string()


def parse_body(response: Response) -> Json:
    """The body as parsed JSON where it is JSON, else as text, and None where it is empty.

    Only what every Airflow database can store is taken for JSON: no ``NaN``, no NUL, no lone surrogate.

    :param response: the response; its body is at most 1 MiB.
    """
    text = _decode(response).replace("\x00", "").strip()
    if not text:
        return None
    try:
        parsed: Json = json.loads(text)
        stored = json.dumps(parsed, ensure_ascii=False, allow_nan=False)
        stored.encode("utf-8")
    except (ValueError, RecursionError):  # not JSON, NaN, a number of 4,301 digits, a lone surrogate, or too deep
        return text
    return text if "\\u0000" in stored else parsed


def _decode(response: Response) -> str:
    charset = re.search(r"charset=[\"']?([\w.:-]+)", response.headers.get("content-type", ""), re.IGNORECASE)
    try:
        return response.body.decode(charset.group(1) if charset else "utf-8-sig")
    except (LookupError, ValueError, AssertionError):  # unknown charset, wrong bytes, a codec that is not for text
        return response.body.decode("utf-8", "replace")


def error_words(body: Json) -> str | None:
    """The service's own words if ``body`` is an error envelope, else None; an envelope without words has some given.

    :param body: what :func:`parse_body` returned.
    """
    if not isinstance(body, dict):
        return None
    states = [body.get(key) for key in ("_status", "status")]
    if not any(isinstance(state, str) and state.strip().lower() == "error" for state in states):
        return None
    return service_words(body) or "no reason given"


def service_words(body: Json) -> str:
    """What the service says in ``body``, for people to read; empty where it says nothing.

    :param body: what :func:`parse_body` returned.
    """
    if isinstance(body, dict):
        words = next((body[key] for key in ("response", "message") if isinstance(body.get(key), str)), "")
    else:
        words = body if isinstance(body, str) and "<" not in body else ""
    return " ".join(words.split())


def is_web_page(response: Response, body: Json) -> bool:
    """Whether a person's page came instead of an API's answer: a login page, a proxy's, the wrong host's.

    :param response: the response.
    :param body: its body, from :func:`parse_body`.
    """
    html = response.headers.get("content-type", "").lower().startswith(("text/html", "application/xhtml"))
    return isinstance(body, str) and (html or bool(re.match(r"\s*<(!doctype|html|head|body)\b", body, re.IGNORECASE)))


def find_link(file_id: str, response: Response, body: Json, token_path: tuple[str, ...]) -> DownloadLink | None:
    """The download link in an answer, or None where there is no token in it.

    :param file_id: the file that it is for.
    :param response: the response.
    :param body: its body, from :func:`parse_body`.
    :param token_path: where the token is; empty to look in all the usual places.
    """
    token = _token_at(body, token_path) if token_path else _find_token(body)
    if token is None:
        return None
    url = next((value for _, value in _fields(body, _URL_NAMES) if isinstance(value, str) and value), None)
    return DownloadLink(file_id, token, url, response.received_at, _find_expiry(body, response.received_at))


def keys_of(body: Json) -> str:
    """The names, never the values, of what was in an answer; for the message that says that no token was.

    :param body: what :func:`parse_body` returned.
    """
    if not isinstance(body, dict):
        return (
            f"its body is {'empty' if body is None else 'a text' if isinstance(body, str) else 'a JSON ' + type(body).__name__}"
        )
    data = body.get("data")
    names = [*map(str, body), *(f"data.{key}" for key in data)] if isinstance(data, dict) else list(map(str, body))
    shown = [name if re.fullmatch(r"[\w.-]{1,40}", name) else "?" for name in names[:20]]
    return f"it has the keys {', '.join(shown)}" if shown else "it is an empty JSON object"


def _places(body: Json) -> Iterator[Mapping[str, Any]]:
    """The two places where fields stand: the top, and below ``data``."""
    if isinstance(body, dict):
        yield body
        if isinstance(body.get("data"), dict):
            yield body["data"]


def _fields(body: Json, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in names:
        for place in _places(body):
            if place.get(name) is not None:
                yield name, place[name]


def _as_token(value: Any) -> str | None:
    """``value`` if it can be a token: printable, in one piece, and no markup."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and re.fullmatch(r"[^\s<>\x00-\x1f\x7f]+", value) and len(value) <= _LONGEST_TOKEN:
        return value
    return None


def _token_at(body: Json, path: tuple[str, ...]) -> str | None:
    value: Any = body
    for key in path:
        if isinstance(value, list) and re.fullmatch(r"\d{1,6}", key, re.ASCII):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return _as_token(value)


def _find_token(body: Json) -> str | None:
    named = [_as_token(value) for _, value in _fields(body, _TOKEN_NAMES)]
    in_urls = [_as_token(_query_value(value, _TOKEN_NAMES)) for _, value in _fields(body, _URL_NAMES)]
    return next((token for token in (*named, *in_urls, _as_token(body)) if token is not None), None)


def _query_value(url: Any, names: tuple[str, ...]) -> str | None:
    if not isinstance(url, str):
        return None
    pairs = [pair.partition("=") for pair in url.partition("?")[2].partition("#")[0].split("&")]
    # Not unquote_plus: a token holds no space, so a plus sign is one that the service forgot to encode.
    return next((unquote(value) for name in names for key, _, value in pairs if unquote(key) == name and value), None)


def _find_expiry(body: Json, received_at: DateTime) -> DateTime | None:
    for name, value in _fields(body, _EXPIRY_NAMES):
        moment = _moment(value, received_at, relative=name == "expires_in")
        if moment is not None:
            return moment
    return None


def _utc(parsed: object) -> DateTime | None:
    return parsed.in_timezone("UTC") if isinstance(parsed, DateTime) else None


def _moment(value: Any, received_at: DateTime, *, relative: bool) -> DateTime | None:
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII):
            return None if relative or not value[:1].isdigit() else _utc(pendulum.parse(value, tz="UTC", now=received_at))
        number = float(value)
        if relative or number < _EPOCH_FROM:
            return received_at.add(seconds=number)
        return pendulum.from_timestamp(number / 1000 if number >= _MILLISECONDS_FROM else number, tz="UTC")
    except (ValueError, TypeError, OverflowError, OSError):  # not a date, or one that no calendar holds
        return None
