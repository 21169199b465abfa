"""What an operator's arguments mean: checked where the DAG is read, and parsed once Airflow has rendered them."""

from __future__ import annotations

import ast
import json
from typing import Any

from airflow_provider_cloudstore.protocol.errors import InvalidInputError
from airflow_provider_cloudstore.protocol.identifiers import is_nothing

_MISSING = "which is what a template renders when its source is missing: check that the upstream task ran and returned the value"


def validate_urls(urls: Any) -> None:
    """Reject what can be neither a list nor a path.

    :raises ValueError: if it is neither.
    """
    if urls is None:
        raise ValueError(f"urls is 'None', {_MISSING}")
    if isinstance(urls, (bytes, dict, int, float)):
        raise ValueError(f"urls must be a list or the path of a manifest, not a {type(urls).__name__}")


def parse_urls(urls: Any) -> list[Any] | None:
    """The list in ``urls``, or None for the path of a manifest. A list may have been rendered as a string.

    :raises ValueError: if it is neither; the message does not repeat it, because URLs hold credentials.
    """
    validate_urls(urls)
    if not isinstance(urls, str):
        return list(urls)
    text = urls.strip()
    if text.startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
        raise ValueError("urls begins like a list but cannot be read as one: pass an XCom, or render it with | tojson")
    if is_nothing(text):
        raise ValueError(f"urls is {f'{text!r}' if text else 'empty'}, {_MISSING}")
    if "\n" in text:
        raise ValueError("urls has line breaks: it is a list, or the path of a manifest")
    if text.lower().startswith(("http://", "https://", "ftp://")):
        raise ValueError("urls is a single URL: pass a list, or the path of a manifest")
    return None


def validate_limits(concurrency: object, rate: object, failures: object) -> None:
    """Reject limits that are no positive numbers; the rate and the number of consecutive failures may be None.

    :raises ValueError: if one is invalid.
    """
    for name, value in (("max_concurrency", concurrency), ("max_consecutive_failures", failures)):
        if value is None and name == "max_consecutive_failures":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if rate is not None and (not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0):
        raise ValueError(f"requests_per_second must be a number above 0 or None, not {rate!r}")


def validate_columns(**columns: object) -> None:
    """Reject column names that are empty or no strings.

    :raises ValueError: if one is invalid.
    """
    for argument, name in columns.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{argument} must be the name of a column, not {name!r}")


def validate_shard(shard: Any) -> None:
    """Reject a literal shard that does not exist; a template is parsed once it is rendered.

    :raises ValueError: if it is invalid.
    """
    is_literal = isinstance(shard, (list, tuple)) and all(isinstance(part, int) for part in shard)
    if is_literal and not _pair_of(shard):
        raise ValueError(f"shard is {shard!r}: it must be (k, n), with k from 0 to n - 1")


def parse_shard(shard: Any) -> tuple[int, int]:
    """A shard as Airflow rendered it: ``(0, 4)``, ``[0, 4]``, or either as a string, or ``0/4``.

    :raises InvalidInputError: if it is none.
    """
    if found := _pair_of(shard):
        return found
    raise InvalidInputError(f"shard is {str(shard)[:40]!r}: it must be (k, n), with k from 0 to n - 1; nothing was sent")


def _pair_of(shard: Any) -> tuple[int, int] | None:
    try:
        parts = ast.literal_eval(shard.replace("/", ",")) if isinstance(shard, str) else shard
        number, of = (int(part) for part in parts)
    except (ValueError, TypeError, SyntaxError):
        return None
    return (number, of) if 0 <= number < of else None


def parse_flag(value: Any, name: str) -> bool:
    """The flag ``name`` as Airflow rendered it: a bool, or ``true`` or ``false`` in any case.

    :raises InvalidInputError: if it is neither.
    """
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"{name} is {text[:40]!r}: it must be true or false; nothing was sent")
    return text == "true"
