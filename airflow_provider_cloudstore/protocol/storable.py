"""Plain data that every Airflow stores and gives back unchanged: for XComs, receipts and trigger events.

What a service sends is not: Airflow's serializers give a meaning to some keys (one of them has a class imported), its
databases refuse NUL and lone surrogates, and between task and supervisor no integer has more than 64 bits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_CHARACTERS = 32 * 1024
"""Of one value, keys included; the task state store of Airflow 3.3 takes 64 KiB."""
_MAX_DEPTH = 32
_OMITTED = "(omitted: the response is too large to store whole)"
_INTEGERS = range(-(2**63), 2**63)
_EXACT = 2.0**53  # a larger float comes back from PostgreSQL as an integer that is not equal to it
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MIN_FLOAT = 8  # characters that any value counts for: punctuation and numbers take space as well


def storable(value: Any, clean: Callable[[str], str] = str) -> Json:
    """``value`` as plain data: bounded in depth and size, finite numbers, texts and keys that no serializer trips over.

    A number that does not fit becomes text, a NUL or a lone surrogate becomes U+FFFD, a key that begins with ``__`` has ``key``
    put before it, and what exceeds the size is left out, saying so.

    :param value: parsed JSON.
    :param clean: takes secrets out of a text; it is given every text and key, whole.
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
        text = _UNSTORABLE.sub("\ufffd", self._clean(value))
        if len(text) > max(0, self._left):
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
            while key in stored:  # two keys may have become one
                key += "_"
            stored[key] = self.store(value, depth + 1)
        return stored
