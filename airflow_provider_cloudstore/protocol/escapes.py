"""Decodes the escapes that may hide a folder id or a secret: percent, HTML and JSON."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from urllib.parse import unquote

_JSON_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


def _json(text: str) -> str:
    r"""``text`` without the escapes of JSON, such as ``\/`` and ``\u002f``."""
    return _JSON_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text) if "\\" in text else text


ALL: tuple[Callable[[str], str], ...] = (unquote, html.unescape, _json)
"""From the innermost to the outermost where they are nested: a URL in a web page in a JSON text."""
