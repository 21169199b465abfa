"""Makes plain data that every Airflow version stores and returns unchanged, for XComs, receipts and trigger events.

A service's response may not survive: Airflow's serializers interpret some keys (one key imports a class), its databases reject
NUL and lone surrogates, and integers between task and supervisor have at most 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from airflow_provider_cloudstore.protocol.secrets import MASK, is_credential_name, is_word
from airflow_provider_cloudstore.results import Json

MAX_BYTES = 32 * 1024
"""The maximum size of a value as JSON; the task state store of Airflow 3.3 takes 64 KiB."""
_OMITTED = "(omitted: the response is too large to store)"
_INTEGERS = range(-(2**63), 2**63)
_EXACT = 2.0**53  # PostgreSQL returns a larger float as an integer that is not equal to it
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any, clean: Callable[[str], str] = str, *, max_bytes: float = MAX_BYTES) -> Json:
    """Return ``value`` as plain data of limited size, with finite numbers, and with strings and keys safe for every serializer.

    A number that does not fit becomes a string, a NUL or a lone surrogate becomes U+FFFD, and a key that begins with ``__`` is
    prefixed with ``key``. Texts and numbers are masked if their key, or a key above it, is the name of a credential. A note
    replaces a value that is too large.

    :param value: parsed JSON, which ``reading.py`` does not let be nested too deeply.
    :param clean: removes secrets from a string, a key or a number.
    :param max_bytes: the maximum size as JSON.
    """
    stored = _stored(value, clean, is_credential=False)
    return stored if len(json.dumps(stored)) <= max_bytes else _OMITTED


def _stored(value: Any, clean: Callable[[str], str], *, is_credential: bool) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        text = json.dumps(value)
        if _is_exact(value) and clean(text) == text and (not is_credential or is_word(text)):
            return value
        value = text
    if isinstance(value, str):
        return MASK if is_credential and not is_word(value) else _text(value, clean)
    if isinstance(value, list):
        return [_stored(item, clean, is_credential=is_credential) for item in value]
    return {
        _key(name, clean): _stored(item, clean, is_credential=is_credential or is_credential_name(name))
        for name, item in value.items()
    }


def _is_exact(value: float) -> bool:
    """Whether every database returns the number unchanged."""
    return value in _INTEGERS if isinstance(value, int) else math.isfinite(value) and abs(value) <= _EXACT


def _text(value: str, clean: Callable[[str], str]) -> str:
    return _UNSTORABLE.sub("\ufffd", clean(value))


def _key(name: str, clean: Callable[[str], str]) -> str:
    key = _text(name, clean)
    return f"key{key}" if key.startswith("__") else key
