"""Finds a file's id, or a download token with its URL and expiry, at the places in a response that the service declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, quote, urljoin, urlsplit, urlunsplit

import pendulum
from pendulum import UTC, DateTime

from airflow_provider_cloudstore.protocol.convention import is_pending
from airflow_provider_cloudstore.protocol.folder_ids import is_nothing
from airflow_provider_cloudstore.protocol.reading import Reading
from airflow_provider_cloudstore.protocol.secrets import Secret, repeats_secret, secrets_in
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink

_TOKENS_IN_QUERY = ("download_token", "token")
_URL = re.compile(r"https?://[^\s\\]+", re.IGNORECASE)
_EPOCH_FROM = 100_000_000  # a smaller number would be a date before 1973, so it counts seconds from now
_MILLISECONDS_FROM = 100_000_000_000  # read as seconds, a larger number would be a date after the year 5138
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")
_MIN_BARE_TOKEN = 8  # a plain-text body with fewer characters is a word, not a token
_PLACEHOLDER = re.compile(r"0+|-[0-9]+")  # what careless services write for a missing value


def moment(timestamp: float) -> DateTime:
    """Convert a Unix time to UTC. Pendulum's own conversions take six times as long, and a batch needs it for each URL."""
    at = datetime.fromtimestamp(timestamp, UTC)
    return DateTime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, UTC)


def link_secrets(link: DownloadLink) -> tuple[Secret, ...]:
    """Return the token of a link and the credentials in its URL."""
    return tuple({Secret(link.token), *secrets_in({"url": link.url_with_token or ""})})


def find_file_id(reading: Reading) -> str | None:
    """Return the id of an uploaded file; None if the response has no id, or repeats the access token in its place.

    It may repeat another secret of the call: a source URL may well contain the id.
    """
    settings = reading.settings
    return next(_texts(settings.service.file_id_path.values_in(reading.data), (settings.access_token,)), None)


def find_link(file_id: str, reading: Reading) -> DownloadLink | None:
    """Return the download link in a response, or None if the response contains no token.

    A value that repeats a secret of the call is used neither as the token nor as the URL.
    """
    settings, created_at = reading.settings, moment(reading.response.received_at)
    urls = _urls(reading)
    token = _token(reading) or next(_texts(map(_token_in_query, urls), reading.secrets), None)
    if token is None:
        return None
    expiries = (_expiry(value, created_at) for value in settings.service.expires_path.values_in(reading.data))
    return DownloadLink(file_id, token, _url_of(token, urls, settings), created_at, next(filter(None, expiries), None))


def _urls(reading: Reading) -> list[str]:
    """Return the URLs at ``download_url_path``. A text without a slash or a question mark is no relative URL, but a word."""
    settings = reading.settings
    texts = _texts(settings.service.download_url_path.values_in(reading.data), reading.secrets)
    urls = [absolute_url(text, settings.base_url) for text in texts if re.search("[/?]", text)]
    return [url for url in urls if _URL.fullmatch(url)]


def _url_of(token: str, urls: list[str], settings: Settings) -> str | None:
    """Return the URL of a link: the token itself, the first URL of the response, or extra ``download_url``."""
    if _URL.match(token):
        return absolute_url(token, settings.base_url)
    if urls or not settings.service.download_url:
        return next(iter(urls), None)
    return settings.service.download_url.replace("{token}", quote(token, safe=""))


def _token(reading: Reading) -> str | None:
    """Return the token at ``token_path``, or a body of plain text, unless it is a short word or has spaces, as a message has."""
    service = reading.settings.service
    candidates: Iterable[Any] = service.token_path.values_in(reading.data)
    if isinstance(text := reading.data, str):
        is_possible = reading.is_2xx and not reading.problem and len(text) >= _MIN_BARE_TOKEN and not is_pending(text)
        is_message = is_possible and (reading.refuses_token or reading.matches(service.not_found_pattern))
        candidates = [text] if is_possible and not is_message else []
    for token in _texts(candidates, reading.secrets):
        if _URL.match(token) or not re.search(r"\s", token):
            return token
    return None


def absolute_url(text: str, base_url: str) -> str:
    """Resolve a URL that has no host, and percent-encode its spaces and similar characters, as is done for redirects.

    Text that is not a URL is returned unchanged.
    """
    text = text.strip()
    if "://" in text.partition("?")[0] and not _URL.match(text):
        return text
    with suppress(ValueError):  # brackets without an IPv6 address
        parts = urlsplit(urljoin(base_url, text))
        path, query = (quote(part, safe="!$%&'()*+,/:;=?@[]~") for part in (parts.path, parts.query))  # keeps what is encoded
        return urlunsplit((parts.scheme, parts.netloc, path, query, parts.fragment))
    return text


def _texts(values: Iterable[Any], secrets: tuple[Secret, ...]) -> Iterator[str]:
    """Yield the usable values as text, without zero, words for a missing value such as ``null``, and secrets of the call."""
    for value in values:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or _CONTROLS.search(text) or is_nothing(text) or _PLACEHOLDER.fullmatch(text):
            continue
        if not repeats_secret(text, secrets):
            yield text


def _token_in_query(url: str) -> str | None:
    # A token has no space, so a plus sign does not stand for a space: the service forgot to encode it.
    values = parse_qs(url.partition("?")[2].partition("#")[0].replace("+", "%2B"))
    return next((values[name][0] for name in _TOKENS_IN_QUERY if name in values), None)


def _expiry(value: Any, created_at: DateTime) -> DateTime | None:
    """Parse an ISO 8601 date (in UTC if it names no zone), seconds or milliseconds since 1970, or seconds from now."""
    with suppress(ValueError, TypeError, OverflowError, OSError):  # not a date, or out of range
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return pendulum.instance(datetime.fromisoformat(value), tz="UTC").in_timezone("UTC")
        seconds = float("nan" if isinstance(value, bool) else value)
        if 0 < seconds < _EPOCH_FROM:
            return created_at.add(seconds=seconds)
        return moment(seconds / 1000 if seconds > _MILLISECONDS_FROM else seconds) if seconds > 0 else None
    return None
