"""What an operator's arguments mean: checked where the DAG is read, and parsed once Airflow has rendered them."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from airflow_provider_cloudstore.protocol.errors import InvalidInputError
from airflow_provider_cloudstore.protocol.identifiers import is_nothing

_MISSING = "which is what a template renders when its source is missing: check that the upstream task ran and returned the value"
_SHARD_FORM = "it must be (k, n), a pair of whole numbers with k from 0 to n - 1"
_PAIR = re.compile(r"""[(\[]\s*(['"]?)(?P<number>[0-9]{1,9})\1\s*,\s*(['"]?)(?P<of>[0-9]{1,9})\3\s*[)\]]""")
MAX_CONCURRENCY = 500


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


def validate_limits(
    max_concurrency: object, requests_per_second: object, max_consecutive_failures: object, allowed_failures: object
) -> None:
    """Reject limits that are no numbers in their range; the rate and the number of consecutive failures may be None.

    :raises ValueError: if one is invalid.
    """
    limits = [("max_concurrency", max_concurrency, 1), ("allowed_failures", allowed_failures, 0)]
    if max_consecutive_failures is not None:
        limits.append(("max_consecutive_failures", max_consecutive_failures, 1))
    for name, value, least in limits:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if name == "max_concurrency" and value > MAX_CONCURRENCY:
            raise ValueError(f"max_concurrency must be at most {MAX_CONCURRENCY}, not {value!r}")
    rate = requests_per_second
    if rate is not None and (not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0):
        raise ValueError(f"requests_per_second must be a number above 0 or None, not {rate!r}")


def validate_columns(*, url_column: object, key_column: object) -> None:
    """Reject column names that are empty or no strings; ``key_column`` may be None.

    :raises ValueError: if one is invalid.
    """
    for argument, name in (("url_column", url_column), ("key_column", "none" if key_column is None else key_column)):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{argument} must be the name of a column, not {name!r}")


def validate_shard(shard: Any) -> None:
    """Reject a literal shard that does not exist; None is none, and a template is parsed once it is rendered.

    :raises ValueError: if it is invalid.
    """
    if shard is not None and _is_literal(shard) and not _pair_of(shard):
        raise ValueError(f"shard is {shard!r}: {_SHARD_FORM}")


def parse_shard(shard: Any) -> tuple[int, int]:
    """A shard as Airflow rendered it: a pair of whole numbers such as ``(0, 4)``, or that pair as text.

    :raises InvalidInputError: if it is neither.
    """
    if pair := _pair_of(shard):
        return pair
    raise InvalidInputError(f"shard is {str(shard)[:40]!r}: {_SHARD_FORM}; nothing was sent")


def _is_literal(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" not in value and "{%" not in value
    if isinstance(value, (list, tuple)):
        return all(_is_literal(part) for part in value)
    return value is None or isinstance(value, (int, float))


def _pair_of(shard: Any) -> tuple[int, int] | None:
    text = str(shard) if isinstance(shard, (str, list, tuple)) else ""
    if found := _PAIR.fullmatch(text.strip()):
        number, of = int(found["number"]), int(found["of"])
        return (number, of) if number < of else None
    return None
