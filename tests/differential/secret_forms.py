"""The secrets of the differential test, and the forms in which a service could give them back."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

ACCESS_TOKEN = "At9+kZ/0pQ=&<w7>~rSé5"
SOURCE_PASSWORD = "sRc9+pW/x&<8>é=yQ2"
SOURCE_SIGNATURE = "sIg7+Nz/4=<t>u&R0w"
PROXY_PASSWORD = "pRx3+Vb/6=<m>n&K1z"
LINK_TOKEN = "lNk5+Xd/8=<q>w&T3j"
SOURCE_HOST = "source.example.com"


def source_url(name: str) -> str:
    """A source URL with credentials in its user info and its query."""
    userinfo, signature = f"us:{quote(SOURCE_PASSWORD, safe='')}", quote(SOURCE_SIGNATURE, safe="")
    return f"https://{userinfo}@{SOURCE_HOST}/{name}?sig={signature}"


def proxy_url(port: int) -> str:
    """The URL of a proxy on this machine, with credentials."""
    return f"http://us:{quote(PROXY_PASSWORD, safe='')}@127.0.0.1:{port}"


def link_url(port: int, name: str) -> str:
    """The URL of a file on this machine, with its download token."""
    return f"http://127.0.0.1:{port}/d/{name}?download_token={quote(LINK_TOKEN, safe='')}"


def _percent(text: str) -> str:
    return quote(text, safe="")


def _every(template: str) -> Callable[[str], str]:
    return lambda text: "".join(template.format(ord(letter)) for letter in text)


def _base64_inside(text: str) -> str:
    return base64.b64encode(f"x{text}yz".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "raw": lambda text: text,
    "percent": _percent,
    "percent lower": lambda text: quote(text, safe="").replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d"),
    "percent plus": quote_plus,
    "percent all": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent twice": lambda text: _percent(_percent(text)),
    "percent three times": lambda text: _percent(_percent(_percent(text))),
    "html": html.escape,
    "html twice": lambda text: html.escape(html.escape(text)),
    "html decimal": _every("&#{};"),
    "html hex": _every("&#x{:x};"),
    "json": lambda text: json.dumps(text)[1:-1],
    "json slash": lambda text: text.replace("/", "\\/"),
    "json plus": lambda text: text.replace("+", "\\u002b"),
    "json all": _every("\\u{:04x}"),
    "json all upper": _every("\\u{:04X}"),
    "hex escapes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 bare": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 inside": _base64_inside,
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "base64 percent": lambda text: base64.b64encode(_percent(text).encode()).decode(),
    "basic": lambda text: base64.b64encode(f"us:{text}".encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "hex upper": lambda text: text.encode().hex().upper(),
    "percent html": lambda text: _percent(html.escape(text)),
}
"""By name, how a text could write a secret."""


def found_in(text: str, secrets: tuple[str, ...]) -> str | None:
    """The form of a secret that stands in ``text``, if one does."""
    for secret in secrets:
        for name, form in _forms(secret):
            if form in text:
                return f"{secret!r} as {name}"
    return None


_printed: dict[str, list[tuple[str, str]]] = {}


def _forms(secret: str) -> list[tuple[str, str]]:
    if secret not in _printed:
        forms = {name: form(secret) for name, form in FORMS.items()}
        forms |= {"repr": repr(secret)[1:-1], "ascii": ascii(secret)[1:-1], "latin-1": secret.encode().decode("latin-1")}
        _printed[secret] = list(forms.items())
    return _printed[secret]
