"""Reads a response: parses its body, and finds words and numbers of the service in it. ``signals.py`` decides what they mean."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from airflow_provider_cloudstore.protocol import convention
from airflow_provider_cloudstore.protocol.http import MAX_BODY_BYTES, Response
from airflow_provider_cloudstore.protocol.secrets import Secret, redact
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.protocol.storable import MAX_BYTES, storable
from airflow_provider_cloudstore.protocol.urls import split_url
from airflow_provider_cloudstore.results import Json

PAGE_TYPES = ("text/html", "application/xhtml")
_MAX_MESSAGE_LENGTH = 300
_MAX_LEVELS = 32  # whoever walks deeper would exceed Python's recursion limit
_json = json.JSONDecoder(strict=False)  # careless services send raw line breaks inside strings


@dataclass(frozen=True, slots=True)
class Reading:
    """A response with its parsed body.

    :param settings: declare how the response is read.
    :param data: the parsed JSON; the text if the body is not JSON; None if it is empty. The data may contain secrets.
    :param problem: the reason why the body cannot come from the service itself; empty if it can.
    :param secrets: the secrets that no message and no stored value may contain.
    :param found: what the operation asked for, such as a token, if it is in the response; otherwise None.
    """

    response: Response
    settings: Settings
    data: Json = field(repr=False, default=None)
    problem: str = ""
    secrets: tuple[Secret, ...] = ()
    found: Any = field(repr=False, default=None)

    @property
    def is_2xx(self) -> bool:
        """Whether the HTTP status reports a success."""
        return 200 <= self.response.status <= 299

    @property
    def status_text(self) -> str:
        """The HTTP status for an error message, with a redirect's target, what is wrong with the body, or contradicts a 2xx."""
        seen = f"HTTP {self.response.status}"
        if self.response.status // 100 == 3:
            return f"{seen}, a redirect{self._redirect_target}"
        if self.problem:
            return f"{seen} with {self.problem}"
        return f"{seen} that states {self.stated_status}" if self.stated_status else seen

    @property
    def _redirect_target(self) -> str:
        """Where a redirect leads, for an error message: scheme and host alone, because the rest may give access."""
        with suppress(KeyError, ValueError):  # there is no URL, or it is ambiguous
            parts = split_url(urljoin(self.settings.base_url, self.response.headers["location"]))
            return self.redacted(f" to {parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        return ""

    @property
    def key_names(self) -> str:
        """The names of the body's fields for an error message, without secrets; never their values."""
        if not isinstance(self.data, dict):
            return "its body is empty" if self.data is None else "its body is not a JSON object"
        inner = self.data.get("data")
        keys = [*self.data, *(f"data.{key}" for key in inner)] if isinstance(inner, dict) else list(self.data)
        names = [name if re.fullmatch(r"[\w.@-]{1,40}", name) else "?" for name in keys[:20]]
        return self.redacted(f"it has the keys {', '.join(names)}") if names else "it is an empty JSON object"

    @property
    def stated_status(self) -> int | None:
        """The HTTP status that a number in the body of a 2xx states, or None."""
        return convention.stated_status(self.data) if self.is_2xx else None

    @property
    def texts(self) -> list[str]:
        """What the service says, with single spaces: plain text, or the texts at ``message_path`` and an error's state."""
        if self.problem:
            return []
        in_fields = [*self.settings.service.message_path.values_in(self.data), *convention.error_states(self.data)]
        found = [self.data] if isinstance(self.data, str) else in_fields
        texts = [str(value) for value in found if isinstance(value, (str, int)) and not isinstance(value, bool)]
        return [" ".join(text.split()) for text in texts if text.strip()]

    @property
    def message(self) -> str:
        """The first of the texts, for an error: without secrets, and then cut, because half a secret would not be recognized."""
        return self.redacted(next(iter(self.texts), ""))[:_MAX_MESSAGE_LENGTH]

    @property
    def refuses_token(self) -> bool:
        """Whether the body matches ``token_refused_pattern``; without such a pattern, whether the service's words mean that."""
        pattern = self.settings.service.token_refused_pattern
        return self.matches(pattern) if pattern else any(map(convention.refuses_token, self.texts))

    def matches(self, pattern: re.Pattern[str] | None) -> bool:
        """Whether a pattern matches anything in the body, as it came, as parsed, or in the service's texts."""
        if pattern is None:
            return False
        as_it_came, as_parsed = self.response.body.decode("utf-8", "replace"), json.dumps(self.data, ensure_ascii=False)
        return any(map(pattern.search, [as_it_came, as_parsed, *self.texts]))

    def redacted(self, text: str) -> str:
        """Return ``text`` without secrets."""
        return redact(text, self.secrets)

    def storable_data(self, file_id: str = "", max_bytes: float = MAX_BYTES) -> Json:
        """Return the data as Airflow can store it, without secrets. The file's id is not masked, even if it repeats a secret."""
        return storable(self.data, lambda text: text if text == file_id else self.redacted(text), max_bytes=max_bytes)


def read(response: Response, settings: Settings, secrets: tuple[Secret, ...] = ()) -> Reading:
    """Parse the body of a response."""
    if len(response.body) > MAX_BODY_BYTES:
        return Reading(response, settings, None, "a body of more than 1 MiB, which was cut off", secrets)
    text = response.body.decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text:
        return Reading(response, settings, None, "", secrets)
    with suppress(ValueError, RecursionError):
        data = _json.decode(text)
        if _levels(data) > _MAX_LEVELS:
            return Reading(response, settings, None, "a body that is nested too deeply", secrets)
        return Reading(response, settings, data, "", secrets)
    return Reading(response, settings, text, _problem_of(text, response.headers.get("content-type", "").lower()), secrets)


def _levels(data: Json) -> int:
    levels, inside = 0, [data]
    while inside:
        levels += 1
        lists = [value.values() if isinstance(value, dict) else value for value in inside if isinstance(value, (dict, list))]
        inside = [value for values in lists for value in values]
    return levels


def _problem_of(text: str, content_type: str) -> str:
    """Return the reason why a body that is not JSON cannot come from the service itself; empty if it is plain text."""
    if text.startswith("<?xml"):
        return "XML in place of the service's response"
    if text.startswith("<") or content_type.startswith(PAGE_TYPES):
        return "a web page in place of the service's response"
    return "a body that begins like JSON and is not JSON" if text[0] in "{[" else ""
