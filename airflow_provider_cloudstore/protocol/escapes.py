"""Decodes the escapes that may hide a folder id or a secret: percent, HTML, JSON, PHP and Python."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from urllib.parse import unquote

_BACKSLASH = re.compile(
    r"((?:\\x[0-9a-f]{1,2}|\\[0-3][0-7]{2})+)|\\(?:u\{([0-9a-f]{1,6})\}|(?-i:U)([0-9a-f]{8})|(?-i:u)([0-9a-f]{4})|(.))",
    re.IGNORECASE | re.DOTALL,
)
_BYTE = re.compile(r"\\(?:x([0-9a-f]{1,2})|([0-7]{3}))", re.IGNORECASE)
_PERCENT_U = re.compile(r"%u([0-9A-Fa-f]{4})")


def percent(text: str) -> str:
    """``text`` without percent-encoding (RFC 3986 section 2.1), and without the ``%u0041`` of old JavaScript."""
    return unquote(_PERCENT_U.sub(lambda match: chr(int(match[1], 16)), text)) if "%" in text else text


def backslashes(text: str) -> str:
    r"""``text`` without the escapes of a backslash: ``\/``, ``\u002f``, ``\u{2f}``, ``\U0000002f``, ``\x2f``, ``\057``."""
    return _BACKSLASH.sub(_character, text) if "\\" in text else text


def entities(text: str) -> str:
    """``text`` without the character references of HTML."""
    return html.unescape(text) if "&" in text else text


ALL: tuple[Callable[[str], str], ...] = (percent, entities, backslashes)


def _character(match: re.Match[str]) -> str:
    octets, braced, eight, four, other = match.groups()
    if octets:
        raw = bytes(int(digits, 16) if digits else int(octal, 8) for digits, octal in _BYTE.findall(octets))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw.decode("latin-1")
    if other is not None:
        return other
    code = int(braced or eight or four, 16)
    return chr(code) if code <= 0x10FFFF else ""
