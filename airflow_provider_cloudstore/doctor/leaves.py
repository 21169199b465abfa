"""The leaves of a response: how they are shown, and which of them could be an id."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from airflow_provider_cloudstore.exceptions import one_line
from airflow_provider_cloudstore.protocol.guards import is_nothing
from airflow_provider_cloudstore.protocol.results import RemoteUpload, value_at
from airflow_provider_cloudstore.protocol.storable import Json

ID = re.compile(r"[^\s{}]{1,200}")


def leaves_of(data: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a response that is no object or list, with its dotted path.

    :param data: parsed JSON.
    """
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if inner is None:
        yield path or "(body)", data
        return
    for name, value in inner:
        yield from leaves_of(value, f"{path}.{name}" if path else str(name))


def shown(value: Any) -> str:
    """A leaf's value on one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value))


def hidden(value: Any) -> str:
    """A leaf of a link's response, any text of which may be the token."""
    return "***" if isinstance(value, str) else shown(value)


def reachable(data: Json) -> list[tuple[str, Any]]:
    """The leaves that a dotted path can name: not those whose keys have dots."""
    return [(path, value) for path, value in leaves_of(data) if value_at(data, tuple(path.split("."))) is value]


def candidate_ids(data: Json, upload: RemoteUpload) -> dict[str, str]:
    """The leaves of an upload's response that could be the file's id."""
    found = {}
    for path, value in reachable(data):
        text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        is_word = text.isalpha() and len(text) < 12
        if ID.fullmatch(text) and not is_word and not is_nothing(text) and "://" not in text and text != upload.url:
            found[path] = text
    return found
