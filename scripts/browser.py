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
def browser() -> Iterator[Any]:
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


def local_page(chromium: Any, width: int = 1400, height: int = 1000, **options: Any) -> Any:
    """A new page whose requests to other machines are aborted.

    :param chromium: a browser, or a context of one.
    :param width: of the page, in CSS pixels.
    :param height: of the page, in CSS pixels.
    :param options: of Playwright's ``new_page``, such as ``color_scheme``.
    """
    page = chromium.new_page(viewport={"width": width, "height": height}, **options)
    page.route(lambda url: not url.startswith(("http://127.0.0.1:", "file:")), lambda route: route.abort())
    page.set_default_timeout(LIMIT)
    return page
