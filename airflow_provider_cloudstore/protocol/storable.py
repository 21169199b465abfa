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

from airflow_provider_cloudstore.protocol.secrets import MASK, has_credential_field, is_credential_name, is_word

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_BYTES = 32 * 1024
"""Of one value as JSON; the task state store of Airflow 3.3 takes 64 KiB."""
_MAX_LEVELS = 32
_OMITTED = "(omitted: the response is too large to store)"
_INTEGERS = range(-(2**63), 2**63)
_EXACT = 2.0**53  # PostgreSQL returns a larger float as an integer that is not equal to it
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_to_json = json.JSONEncoder(allow_nan=False).encode
# In JSON of ASCII: an escape, the beginning of a key that is renamed, and a number that may not fit.
_UNUSUAL = re.compile(r'\\|"__|[0-9]{16}|[0-9]e\+')


def storable(value: Any, clean: Callable[[str], str] = str) -> Json:
    """``value`` as plain data: bounded, with finite numbers, and strings and keys safe for every serializer.

    A number that does not fit becomes a string, a NUL or a lone surrogate becomes U+FFFD, and a key that begins with ``__`` is
    prefixed with ``key``. A field whose name says that it holds a credential is masked. A value that exceeds :data:`MAX_BYTES`,
    or what is below 32 levels, is replaced by a note.

    :param value: parsed JSON.
    :param clean: removes secrets from a string: each string, key and number, or all of ``value`` as JSON. It changes a text if it
        changes a part of it.
    """
    if _is_storable(value, clean):
        return value  # type: ignore[no-any-return]
    stored = _stored(value, clean, _MAX_LEVELS)
    return stored if len(json.dumps(stored)) <= MAX_BYTES else _OMITTED


def _is_storable(value: Any, clean: Callable[[str], str]) -> bool:
    """Whether ``value`` is stored unchanged, at one look: true of nearly all responses. Where in doubt, it is false."""
    try:
        text = _to_json(value)
    except (ValueError, RecursionError):  # NaN, an infinite number, or too many levels
        return False
    may_change = _UNUSUAL.search(text) or has_credential_field(text) or text.count("[") + text.count("{") > _MAX_LEVELS
    return not may_change and len(text) <= MAX_BYTES and clean(text) == text


def _stored(value: Any, clean: Callable[[str], str], levels: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        is_exact = value in _INTEGERS if isinstance(value, int) else math.isfinite(value) and abs(value) <= _EXACT
        text = json.dumps(value)
        return value if is_exact and clean(text) == text else _text(text, clean)
    if isinstance(value, str):
        return _text(value, clean)
    if not levels:
        return _OMITTED
    if isinstance(value, list):
        return [_stored(one, clean, levels - 1) for one in value]
    return {
        _key(name, clean): MASK if _is_credential(name, one) else _stored(one, clean, levels - 1) for name, one in value.items()
    }


def _text(value: str, clean: Callable[[str], str]) -> str:
    return _UNSTORABLE.sub("\ufffd", clean(value))


def _key(name: str, clean: Callable[[str], str]) -> str:
    key = _text(name, clean)
    return f"key{key}" if key.startswith("__") else key


def _is_credential(name: str, value: Any) -> bool:
    says_nothing = value is None or isinstance(value, bool) or (isinstance(value, str) and is_word(value))
    return is_credential_name(name) and not says_nothing
