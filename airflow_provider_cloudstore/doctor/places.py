"""Finds where a response of unknown shape may hold what the package needs, to propose extras of the connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.results import DownloadLink, find_file_id, find_link
from airflow_provider_cloudstore.protocol.secrets import Secret, hides_secret
from airflow_provider_cloudstore.protocol.storable import Json

MAX_CANDIDATES = 5
_MAX_DEPTH = 6
_MAX_ITEMS = 3
"""Of a list: an upload of one file has one item in it."""
_MIN_TOKEN_LENGTH = 6
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ID = frozenset({"id", "uuid", "guid", "hash", "code", "key", "ref", "reference", "identifier", "slug", "fileid", "fid", "oid"})
_OF_SOMETHING_ELSE = frozenset(
    {"queue", "job", "task", "request", "folder", "parent", "user", "account", "owner", "trace", "server"}
)
_TOKEN = frozenset({"token", "key", "hash", "code", "ticket", "signature", "sig", "jwt"})
_LINK = frozenset({"url", "link", "href", "uri", "location", "download"})
_VAGUE = frozenset({"data", "result", "response"})
"""Names of fields that may hold anything, such as the one value that a response has."""
_NOT_A_TOKEN = frozenset(
    {"type", "name", "expires", "expiry", "expiration", "ttl", "at", "in", "until"}
    | {"access", "refresh", "session", "api", "auth", "csrf", "secret"}
)
"""Words in the names of other fields: what describes a token, and tokens for something else."""
_ABOUT_THE_TOKEN = re.compile(
    r"token|auth|credential|log[- ]?in|sign[- ]?in|session|permission|denied|forbidden|expired|api[- ]?key|\buser\b",
    re.IGNORECASE,
)
_SAYS_MISSING = re.compile(
    r"not (be |yet )?(found|available|known)|n[o']t exist|no such|unknown|(could|can) ?n[o']t find|no (file|folder|object|item)"
    r"|missing|deleted",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"[0-9a-f-]{12,}|\w*\d\w*", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_TOKEN_MESSAGES = tuple(
    f"{text.format(name)}."
    for name in ("token", "access token", "API key", "credentials", "session", "user", "account")
    for text in (
        "{} not found",
        "The {} does not exist",
        "Invalid {}",
        "Unknown {}",
        "Wrong {}",
        "No such {}",
        "Missing {}",
        "{} expired",
    )
)
"""What a service may say of a token: no pattern may match it."""


@dataclass(frozen=True, slots=True)
class IdPlace:
    """Where the file's id may be.

    :param path: the value for extra ``file_id_path``; empty for the configured or a usual place.
    """

    path: str
    file_id: str


def id_places(data: Json, secrets: Iterable[Secret]) -> list[IdPlace]:
    """Where the response to an upload may hold the file's id, most likely first.

    :param data: the parsed body.
    :param secrets: the secrets of the call, which are no ids.
    """
    known, found = tuple(secrets), []
    for path in _leaves(data, known):
        file_id = find_file_id(data, path, known)
        if file_id and (rank := _rank_of_id(path, file_id)) is not None:
            found.append((rank, IdPlace(".".join(path), file_id)))
    found.sort(key=lambda one: one[0])
    by_value = {place.file_id: place for _, place in reversed(found)}
    return [place for _, place in found if by_value[place.file_id] is place][:MAX_CANDIDATES]


def _rank_of_id(path: tuple[str, ...], value: str) -> int | None:
    last, above = _words(path[-1]), {word for key in path[:-1] for word in _words(key)}
    if not last & _ID:
        is_one_word = " " not in value and "://" not in value
        return 4 if last & (_VAGUE | {"file"}) and _DIGIT.search(value) and is_one_word else None
    if last & _OF_SOMETHING_ELSE:
        return 3
    return 0 if "file" in last or "fileid" in last else 1 if above & {"file", "files"} else 2


def token_places(response: Response, data: Json, file_id: str, secrets: Iterable[Secret]) -> list[tuple[str, DownloadLink]]:
    """Where the response to a request for a link may hold the token: values for extra ``token_path``, and the links they give.

    :param file_id: the file, whose id is no token.
    :param secrets: the secrets of the call, which are no tokens.
    """
    known, found = tuple(secrets), []
    for path in _leaves(data, known):
        link = find_link(file_id, response, data, path, known)
        if link and link.token != file_id and (rank := _rank_of_token(path, link)):
            found.append((rank, ".".join(path), link))
    return [(path, link) for _, path, link in sorted(found, key=lambda one: one[0])][:MAX_CANDIDATES]


def _rank_of_token(path: tuple[str, ...], link: DownloadLink) -> tuple[bool, ...] | None:
    words, is_url = _words(path[-1]), link.token == link.url_with_token
    may_be_token = len(link.token) >= _MIN_TOKEN_LENGTH and _DIGIT.search(link.token) and words & (_TOKEN | _LINK | _VAGUE)
    if words & _NOT_A_TOKEN or not (is_url or may_be_token):
        return None
    is_for_download = any("download" in _words(key) for key in path)
    return link.url_with_token is None, not words & _TOKEN, "token" not in words, not is_for_download, not words & _LINK


def is_about_token(message: str, subject: str) -> bool:
    """Whether a message seems to be about the token, and not about the id that was asked for."""
    return bool(_ABOUT_THE_TOKEN.search(message.replace(subject, "")))


def not_found_pattern(message: str, subject: str) -> str:
    """A regular expression for the message of a "not found", or an empty string if the message may be about something else.

    :param message: the service's message.
    :param subject: the id that was asked for, which the message may repeat.
    """
    said = message.replace(subject, "")
    if "***" in message or not _SAYS_MISSING.search(said) or is_about_token(message, subject):
        return ""
    parts = re.split("\0+", _VARIABLE.sub("\0", message.replace(subject, "\0")).strip(" \0"))
    if not any(_LETTERS.search(part) for part in parts):
        return ""
    pattern = ".*".join(re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", part) for part in parts)
    return next((one for one in (pattern, f"^{pattern}$") if _is_only_about(message, one)), "")


def _is_only_about(message: str, pattern: str) -> bool:
    """Whether a pattern matches a message, and nothing that is said of a token."""
    found = re.compile(pattern, re.IGNORECASE)
    return bool(found.search(message)) and not any(map(found.search, _TOKEN_MESSAGES))


def constant_part(text: str, echoes: Iterable[str]) -> str:
    """``text`` without what differs from one request to the next.

    :param text: what a response says.
    :param echoes: what the response may repeat of the request. Numbers, also long hexadecimal ones, are removed in any case.
    """
    text = text.replace("\\/", "/")  # as some JSON encoders write it
    for echo in echoes:
        text = text.replace(echo, "")
    return _VARIABLE.sub("", text)


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(name))


def _leaves(data: Json, secrets: tuple[Secret, ...], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths to all values that an extra can name; without those that repeat a secret."""
    if isinstance(data, (dict, list)):
        items = data.items() if isinstance(data, dict) else ((str(number), one) for number, one in enumerate(data[:_MAX_ITEMS]))
        for key, value in items:
            if key and "." not in key and len(path) < _MAX_DEPTH and not hides_secret(key, secrets):
                yield from _leaves(value, secrets, (*path, key))
    elif path:
        yield path
