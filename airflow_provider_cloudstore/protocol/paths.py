"""The two small languages in which a service is declared: *paths* lead to values in a JSON body, and *conditions* test values.

A *path* consists of keys and positions joined by dots (``data.links.0.url``). If it begins with ``/``, it is a JSON Pointer
(RFC 6901), for keys that contain dots. Alternatives are joined by ``|``. Keys are compared without case, ``_`` and ``-``.

A *condition* holds for every response that is a success, and for no other response. It is ``path=value``, ``path`` (the value
exists, and is not empty, null or false) or ``!path``; ``&`` joins tests that must all hold, and ``|`` joins alternatives.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NEGLIGIBLE = ("", "null", "false")
_KEY = re.compile(r"[\w@#+-]+")  # a key with other characters is written as a JSON Pointer
_POSITION = re.compile("[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class Paths:
    """Alternative paths, tried in order."""

    alternatives: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def parse(cls, text: Any) -> Paths:
        """Parse the text of a path and its alternatives.

        :raises ValueError: if the text is not a path.
        """
        found = tuple(_keys(path.strip()) for path in text.split("|")) if isinstance(text, str) else ((),)
        if not all(keys and all(keys) for keys in found):
            raise ValueError(
                "must be keys and positions joined by dots, such as data.links.0.key, with alternatives joined by |; a key with "
                "other characters is written as a JSON Pointer, such as /data/a.b"
            )
        return cls(found)

    def values_in(self, data: Any) -> Iterator[Any]:
        """Yield the value of each path that leads to a value."""
        for keys in self.alternatives:
            value = data
            for key in keys:
                value = _child(value, key)
            if value is not None:
                yield value


def _keys(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        keys = tuple(key.strip() for key in path.split("."))
        return keys if all(map(_KEY.fullmatch, keys)) else ()
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in path[1:].split("/"))


def _child(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return value[int(key)] if _POSITION.fullmatch(key) and int(key) < len(value) else None
    if not isinstance(value, dict):
        return None
    if key in value:
        return value[key]
    return next((child for name, child in value.items() if plain(name) == plain(key)), None)


@functools.lru_cache  # a service uses few different keys
def plain(key: str) -> str:
    """Return a key as it is compared, so that ``fileId`` and ``file_id`` are equal."""
    return key.lower().replace("_", "").replace("-", "")


def leaves_of(data: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each value in parsed JSON that contains no other value, with its keys joined by dots."""
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if not children:
        yield ".".join(keys), data
    for key, value in children:
        yield from leaves_of(value, (*keys, str(key)))


@dataclass(frozen=True, slots=True)
class _Test:
    """A test of the form ``path``, ``!path`` or ``path=value``."""

    paths: Paths
    wanted: str | None
    negated: bool

    def holds(self, data: Any) -> bool:
        found = next(self.paths.values_in(data), None)
        if self.wanted is not None:
            return _as_text(found) == self.wanted
        is_there = bool(found) if isinstance(found, (dict, list)) else _as_text(found) not in _NEGLIGIBLE
        return is_there is not self.negated


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that a response meets exactly if it is a success: in at least one alternative, all tests hold."""

    alternatives: tuple[tuple[_Test, ...], ...] = ()

    @classmethod
    def parse(cls, text: Any) -> Condition:
        """Parse the text of a condition.

        :raises ValueError: if the text is not a condition.
        """
        parts = [tests.split("&") for tests in text.split("|")] if isinstance(text, str) else [[""]]
        return cls(tuple(tuple(map(_parse_test, tests)) for tests in parts))

    def holds(self, data: Any) -> bool:
        """Whether parsed JSON meets the condition."""
        return any(all(test.holds(data) for test in tests) for tests in self.alternatives)


def _parse_test(text: str) -> _Test:
    path, equals, wanted = (part.strip() for part in text.partition("="))
    negated = path.startswith("!")
    keys = _keys(path.removeprefix("!").strip())
    is_malformed = not wanted or wanted[0] in "='\""  # '==' and quoted values belong to other languages
    if not (keys and all(keys)) or (equals and (negated or is_malformed)):
        raise ValueError(
            "must be path=value, path or !path, such as status=ok or data.id, with & for all of several and | for alternatives"
        )
    return _Test(Paths((keys,)), wanted.casefold() if equals else None, negated)


def _as_text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value)).strip().casefold()
