"""Makes plain data that every Airflow stores and returns unchanged: for XComs, receipts and trigger events.

A service's response is not: Airflow's serializers interpret some keys (one imports a class), its databases reject NUL and lone
surrogates, and integers between task and supervisor have at most 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from airflow_provider_cloudstore.protocol.secrets import MASK, is_credential_name

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_CHARACTERS = 32 * 1024
"""Of one value, keys included; the task state store of Airflow 3.3 takes 64 KiB."""
_MAX_DEPTH = 32
_OMITTED = "(omitted: the response is too large to store completely)"
_INTEGERS = range(-(2**63), 2**63)
_EXACT = 2.0**53  # PostgreSQL returns a larger float as an integer that is not equal to it
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MIN_FLOAT = 8  # characters that every value counts for: punctuation and numbers take space, too


def storable(value: Any, clean: Callable[[str], str] = str) -> Json:
    """``value`` as plain data: bounded in depth and size, with finite numbers, and strings and keys safe for every serializer.

    A number that does not fit becomes a string, a NUL or a lone surrogate becomes U+FFFD, a key that begins with ``__`` is
    prefixed with ``key``, and what exceeds the size is replaced by a note. A field whose name says that it holds a credential
    is masked.

    :param value: parsed JSON.
    :param clean: removes secrets from a string; called with every complete string and key.
    """
    return _Storing(clean).store(value, 0)


class _Storing:
    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._left = MAX_CHARACTERS

    def store(self, value: Any, depth: int) -> Json:
        self._left -= _MIN_FLOAT
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return self._number(value)
        if isinstance(value, str):
            return self._text(value)
        if depth >= _MAX_DEPTH or self._left <= 0:
            return _OMITTED
        return self._object(value, depth) if isinstance(value, dict) else self._array(value, depth)

    def _number(self, value: int | float) -> Json:
        is_exact = value in _INTEGERS if isinstance(value, int) else math.isfinite(value) and abs(value) <= _EXACT
        text = json.dumps(value)
        return value if is_exact and self._clean(text) == text else self._text(text)

    def _text(self, value: str) -> str:
        text = self._clean(value)
        if not (text.isascii() and text.isprintable()):
            text = _UNSTORABLE.sub("\ufffd", text)
        if len(text) > self._left:
            text = text[: max(0, self._left)] + _OMITTED
        self._left -= len(text)
        return text

    def _array(self, values: list[Any], depth: int) -> list[Any]:
        stored: list[Any] = []
        for value in values:
            if self._left <= 0:
                return [*stored, _OMITTED]
            stored.append(self.store(value, depth + 1))
        return stored

    def _object(self, fields: dict[str, Any], depth: int) -> dict[str, Any]:
        stored: dict[str, Any] = {}
        for name, value in fields.items():
            if self._left <= 0:
                stored["omitted"] = _OMITTED
                break
            key = self._text(name)
            key = f"key{key}" if key.startswith("__") else key
            while key in stored:  # two keys may have become equal
                key += "_"
            is_credential = is_credential_name(name) and value is not None and not isinstance(value, bool)
            stored[key] = MASK if is_credential else self.store(value, depth + 1)
        return stored
