"""Finds secrets in the output of a complete Airflow, in every form that a library could print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus


def leaks(texts: Iterable[tuple[Path, str]], secrets: Iterable[str]) -> set[tuple[str, str, str]]:
    """Return the file, line and form of every secret found."""
    forms = {form for secret in secrets for form in printed(secret)}
    return {
        (file.name, line[:300], form)
        for file, text in texts
        for form in forms
        if form in text
        for line in text.splitlines()
        if form in line
    }


def texts_of(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Yield the text of each row, under the name of its table."""
    for table, row in rows:
        values = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row.values()]
        yield Path(table), "\n".join(values)


def printed(secret: str) -> set[str]:
    """Return every form that a secret may have; not the package's own list, which is under test."""
    encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="!#$%&'()*+,/:;=?@[]~")}
    encoded |= {quote(secret, safe="?/:@-._~!$'()*,"), quote(secret, safe="/:=&+"), quote_plus(secret, safe="?/:@-._~!$'()*,")}
    return (
        {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], ascii(secret)[1:-1]} | encoded | {one.lower() for one in encoded}
    )
