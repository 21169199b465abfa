"""The secrets of the differential test, and whether one shows."""

from __future__ import annotations

from urllib.parse import quote

from tests.leaks import printed

ACCESS_TOKEN = "At9+kZ/0pQ=&<w7>~rS5"
SOURCE_PASSWORD = "sRc9+pW/x&<8>=yQ2"
SOURCE_SIGNATURE = "sIg7+Nz/4=<t>u&R0w"
LINK_TOKEN = "lNk5+Xd/8=<q>w&T3j"
_SECRETS = (ACCESS_TOKEN, SOURCE_PASSWORD, SOURCE_SIGNATURE, LINK_TOKEN)
FORMS = {secret: sorted(form for form in printed(secret) if not form.islower()) for secret in _SECRETS}
"""By secret, how a text could write it; all in lower case, it would be another one."""


def source_url(name: str) -> str:
    """A source URL with credentials in its user info and its query."""
    userinfo, signature = f"us:{quote(SOURCE_PASSWORD, safe='')}", quote(SOURCE_SIGNATURE, safe="")
    return f"https://{userinfo}@source.example.com/{name}?sig={signature}"


def link_url(port: int, name: str) -> str:
    """The URL of a file on this machine, with its download token."""
    return f"http://127.0.0.1:{port}/d/{name}?download_token={quote(LINK_TOKEN, safe='')}"


def found_in(text: str, secrets: tuple[str, ...]) -> str | None:
    """The form of a secret that stands in ``text``, if one does."""
    return next((form for secret in secrets for form in FORMS[secret] if form in text), None)
