"""Every page of the site, opened from its folder in a browser that may reach nothing but this machine.

Slow: ``make test-site`` builds the site and runs it. It needs Debian's Chromium.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.browser import CHROMIUM, local_page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-site installs it")

SITE = Path(__file__).resolve().parent.parent.parent / ".site"
DESKTOP, PHONE = 1440, 390
"""Widths in CSS pixels."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not there: apt-get install chromium"),
]


def test_every_page_is_without_an_error_needs_nothing_from_elsewhere_and_fits_a_phone() -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert SITE / "index.html" in pages, "make site builds the site"
    problems: list[str] = []
    with local_page() as page:
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
        for file in pages:
            for width in (DESKTOP, PHONE):
                page.set_viewport_size({"width": width, "height": 900})
                page.goto(file.as_uri())
                if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                    problems.append(f"scrolls sideways: {wide} of {width} pixels")
            assert not problems, f"{file.name}: {problems}"
