"""Finds secrets in what a whole Airflow has written, in every text as which they could be printed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, quote_plus


def leaks(texts: Iterable[tuple[Path, str]], secrets: Iterable[str]) -> set[tuple[str, str, str]]:
    """File, line and form of every secret that stands in a text."""
    forms = {form for secret in secrets for form in printed(secret)}
    return {
        (file.name, line[:300], form)
        for file, text in texts
        for form in forms
        if form in text
        for line in text.splitlines()
        if form in line
    }


def printed(secret: str) -> set[str]:
    """Every text as which a secret could be found; not the package's own list, which is what is tested."""
    encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="!#$%&'()*+,/:;=?@[]~")}
    encoded |= {quote(secret, safe="?/:@-._~!$'()*,"), quote(secret, safe="/:=&+"), quote_plus(secret, safe="?/:@-._~!$'()*,")}
    return (
        {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], ascii(secret)[1:-1]} | encoded | {one.lower() for one in encoded}
    )
