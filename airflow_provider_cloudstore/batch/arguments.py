"""What an operator's arguments mean: checked where the DAG is read, and parsed once Airflow has rendered them."""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from airflow_provider_cloudstore.protocol.errors import InvalidInputError
from airflow_provider_cloudstore.protocol.identifiers import is_nothing
from airflow_provider_cloudstore.protocol.secrets import holds_credentials

_MISSING = "which is what a template renders when its source is missing: check that the upstream task ran and returned the value"
_SHARD_FORM = "it must be (k, n), a pair of whole numbers with k from 0 to n - 1"
_PAIR = re.compile(r"""[(\[]\s*(['"]?)([0-9]{1,9})\1\s*,\s*(['"]?)([0-9]{1,9})\3\s*[)\]]""")


def validate_urls(urls: Any) -> None:
    """Reject what can be neither a list nor a path.

    :raises ValueError: if it is neither.
    """
    if urls is None:
        raise ValueError(f"urls is 'None', {_MISSING}")
    if isinstance(urls, (bytes, dict, int, float, PurePath)):
        raise ValueError(f"urls must be a list or, as text, the path of a manifest, not a {type(urls).__name__}")


def validate_paths(**paths: object) -> None:
    """Reject paths with a user and a password: Airflow stores and shows what a DAG file says.

    :raises ValueError: if one holds credentials; the message does not repeat them.
    """
    for name, path in paths.items():
        if isinstance(path, str) and holds_credentials(path):
            raise ValueError(f"{name} holds credentials: store them in an Airflow connection, and write s3://conn_id@bucket/...")


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
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return list(read(text))
        raise ValueError("urls begins like a list but cannot be read as one: pass an XCom, or render it with | tojson")
    if is_nothing(text):
        raise ValueError(f"urls is {text!r}, {_MISSING}")
    if text.lower().startswith(("http://", "https://", "ftp://")):
        raise ValueError("urls begins with a URL: pass a list, or the path of a manifest")
    return None


def validate_shard(shard: Any) -> None:
    """Reject a literal shard that does not exist; None is none, and a template is parsed once it is rendered.

    :raises ValueError: if it is invalid.
    """
    parts = shard if isinstance(shard, (list, tuple)) else [shard]
    is_literal = all(isinstance(part, (str, int, float)) and "{" not in str(part) for part in parts)
    if is_literal and not _pair_of(shard):
        raise ValueError(f"shard is {shard!r}: {_SHARD_FORM}")


def parse_shard(shard: Any) -> tuple[int, int]:
    """A shard as Airflow rendered it: a pair of whole numbers such as ``(0, 4)``, or that pair as text.

    :raises InvalidInputError: if it is neither.
    """
    if pair := _pair_of(shard):
        return pair
    raise InvalidInputError(f"shard is {str(shard)[:40]!r}: {_SHARD_FORM}; nothing was sent")


def _pair_of(shard: Any) -> tuple[int, int] | None:
    found = _PAIR.fullmatch(str(shard).strip())
    return (int(found[2]), int(found[4])) if found and int(found[2]) < int(found[4]) else None
