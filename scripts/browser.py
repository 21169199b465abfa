"""Debian's Chromium, driven by Playwright, with pages that reach nothing but this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIMIT = 60_000
"""Milliseconds that anything on a page may take: a busy machine renders slowly."""


@contextmanager
def local_page() -> Iterator[Any]:
    """A page of a new Chromium; its requests to other machines are aborted."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            page = chromium.new_page(viewport={"width": 1400, "height": 1000})
            page.route(lambda url: not url.startswith(("http://127.0.0.1:", "file:")), lambda route: route.abort())
            page.set_default_timeout(LIMIT)
            yield page
        finally:
            chromium.close()
