"""Declares an extra of the connection, and parses the extras.

No parser repeats the value in its error, because the value may contain a credential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_cloudstore.protocol.folder_ids import folder_id_problem
from airflow_provider_cloudstore.protocol.paths import Condition
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.urls import split_url, url_problem

ROOT = frozenset({"0", "/"})
"""The ids that services use for the root folder; they are always protected."""

Parse = Callable[[Any], Any]
"""Returns the value of an extra, or raises a ``ValueError`` that says what the value must be."""


@dataclass(frozen=True, slots=True)
class Extra:
    """The declaration of an extra.

    :param default: the value if the extra is absent, null or empty.
    :param help: what the extra is for; the form shows this text, and the extra's row in the docs begins with it.
    :param shown_as: the JSON type of its field in the form; ``password`` for a text that may hold a credential.
    """

    default: Any
    parse: Parse
    help: str
    shown_as: str = "string"


def declare(default: Any, parse: Parse, help: str, shown_as: str = "string") -> Any:
    """Return a dataclass field that declares an extra."""
    metadata = {"extra": Extra(default, parse, help, shown_as)}
    return field(default_factory=lambda: default, metadata=metadata, repr=shown_as != "password")


def extras_of(declaration: type[Any]) -> dict[str, Extra]:
    """Return the extras that a dataclass declares, by name."""
    return {declared.name: declared.metadata["extra"] for declared in fields(declaration) if declared.metadata}


@dataclass(frozen=True, slots=True)
class Number:
    """Parses a number within bounds; with ``int``, a whole number."""

    lowest: float
    highest: float
    parse: type[int] | type[float] = float

    def __call__(self, value: Any) -> float:
        """Return the number."""
        with suppress(ValueError):
            parsed = self.parse(str(value))
            if self.lowest <= parsed <= self.highest:
                return parsed
        kind = "whole number" if self.parse is int else "number"
        raise ValueError(f"must be a {kind} from {self.lowest:g} to {self.highest:g}")


def choice(*choices: str) -> Parse:
    """One of a few words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return parse


def url_with(placeholder: str) -> Parse:
    """A URL that contains a placeholder once. Whether plain http is allowed is checked when the URL is used."""

    def parse(value: Any) -> str:
        template = str(value).strip()
        problem = url_problem(template, allow_http=True)
        if template.count(placeholder) != 1:
            problem = f"must be a URL that contains {placeholder} once"
        if problem:
            raise ValueError(f"{problem}; an example is https://files.example.com/files/{placeholder}")
        return template

    return parse


def flag(value: Any) -> bool:
    """True or false, also as text."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def flag_or_path(value: Any) -> bool | str:
    """True, false, or the path of a file."""
    return value if isinstance(value, str) and value.lower() not in ("true", "false") else flag(value)


def _from_json(value: Any) -> Any:
    """Parse text as JSON, which is how the field of a form has it; return anything else unchanged."""
    with suppress(ValueError, RecursionError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def folder_ids(value: Any) -> frozenset[str]:
    """Return the protected ids. A value is an error if it may be meant to protect an id that it does not protect."""
    found = _from_json(value)
    is_list = isinstance(found, list) and all(type(folder_id) in (str, int) for folder_id in found)
    texts = [str(folder_id).strip() for folder_id in found] if is_list else []
    own = {text.strip("/") or text for text in texts}
    if not is_list or any(map(folder_id_problem, own - ROOT)):
        raise ValueError('must be a list of folder ids, each of which names one folder, such as ["id1", "id2"]')
    return ROOT | own


def parse_proxy(value: Any) -> Secret:
    """Return a proxy's URL; the default scheme is ``http``.

    :raises ValueError: if no client can use the URL.
    """
    text = str(value).strip()
    parts = split_url(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must be http or https with a host and a port, without a path or a query")
    return Secret(parts.geturl())


def conditions(value: Any) -> dict[str, Condition | None]:
    """Return one condition for all operations, or a condition for each operation; null stands for the convention."""
    found = _from_json(value)
    given = found if isinstance(found, dict) else {"": value}
    return {key: None if text is None else Condition.parse(text) for key, text in given.items()}


def parameters(value: Any) -> dict[str, str]:
    """Return the parameters of every call, as they are sent."""
    value = _from_json(value)
    if not isinstance(value, dict) or not all(type(text) in (str, int) and name for name, text in value.items()):
        raise ValueError('must be a JSON object of texts, such as {"account_id": "158642"}')
    if "access_token" in map(str.lower, value):
        raise ValueError("must not contain access_token, which is the connection's password")
    return {name: str(text) for name, text in value.items()}


def api_path(value: Any) -> str:
    """Return a path with a slash at its beginning alone."""
    if not isinstance(value, str) or not re.fullmatch(r"/?([\w.~-]+(/[\w.~-]+)*)?/?", value, re.ASCII):
        raise ValueError("must be a path, such as /api/v2")
    return f"/{value.strip('/')}".rstrip("/")


def pattern(value: Any) -> re.Pattern[str]:
    """Return a regular expression without regard to case."""
    try:
        compiled = re.compile(value, re.IGNORECASE)
    except (re.error, TypeError, OverflowError, RecursionError):
        raise ValueError("must be a regular expression, such as no such (folder|file)") from None
    if compiled.search(""):
        raise ValueError("matches every message")
    return compiled
