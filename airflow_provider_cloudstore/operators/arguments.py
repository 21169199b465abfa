"""What the operators' arguments mean: checked when Airflow parses a DAG file; a batch's templated ones once they are rendered.

What is invalid is a ``ValueError``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

_SOURCE_URL = re.compile(r"\b(?:https?|ftp):", re.IGNORECASE)


def validate_flags(**flags: object) -> None:
    """Reject strings as flags: ``"no"`` and ``"false"`` would be true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")


def validate_positive(name: str, value: object) -> float:
    """A rate, or a duration in seconds: a number, or a ``timedelta``, as Airflow's own sensors take it."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(number, (int, float)) or not 0 < number < math.inf:
        raise ValueError(f"{name} must be a number above 0, not {value!r}")
    return number


def validate_whole_number(name: str, value: object, minimum: int, maximum: int | None = None) -> None:
    """Reject what is no whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum or (maximum is not None and value > maximum):
        limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise ValueError(f"{name} must be a whole number {limits}, not {value!r}")


def parse_urls(urls: Any) -> list[Any] | None:
    """The list in ``urls``, which may have been rendered as JSON; None for the path of a manifest, as text or an object.

    The message about something else does not repeat it, because URLs hold credentials.
    """
    from airflow_provider_cloudstore.protocol.guards import is_nothing

    if not isinstance(urls, (str, type(None))) and not hasattr(urls, "open"):
        if isinstance(urls, Iterable) and not isinstance(urls, (bytes, Mapping)):
            return list(urls)
        raise ValueError(f"urls must be a list or, as text, the path of a manifest, not a {type(urls).__name__}")
    text = str(urls).strip()
    if text.startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(text), list):
                return found
        raise ValueError("urls begins like data, but is no list in JSON: pass upstream.output, or render it with | tojson")
    if is_nothing(text):
        missing = "which is what a template renders when its source is missing"
        raise ValueError(f"urls is {text!r}, {missing}: check that the upstream task ran and returned the value")
    if _SOURCE_URL.search(text):
        raise ValueError("urls holds a URL, and is no list: pass a list, or the path of a manifest")
    return None
