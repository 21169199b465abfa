"""The documentation site, built twice and visited page by page in a browser that may reach nothing but this machine.

Slow: ``make test-site`` runs it. It needs Debian's Chromium.
"""

from __future__ import annotations

import filecmp
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.operators import cloudstore as operators
from scripts.browser import CHROMIUM, browser, local_page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-site installs it")
pytest.importorskip("sphinx", reason="sphinx is not installed: make test-site installs it")

from sphinx.errors import ExtensionError

from scripts.site_links import on_the_site

ROOT = Path(__file__).resolve().parent.parent.parent
LONGEST = 4000
"""Pixels of a page's text in a window of 1440 x 1000 pixels: four screens."""
LONG = (
    "genindex",
    "guides/examples",
    "project/changelog",
    *(f"reference/{name}" for name in ("operators", "sensors", "hooks", "errors", "functions", "testing")),
)
"""Pages that are looked up and not read, and may be longer."""
LARGEST_PICTURE = 150_000
"""Bytes."""
PHONE = 390
"""Pixels of a phone's width."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"{CHROMIUM} is not there: apt-get install chromium"),
]


def build(target: Path) -> Path:
    """Build the site as ``make site`` does.

    :param target: the folder to build into.
    """
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-n",
        "-W",
        "-E",
        "-q",
        "-b",
        "html",
        "-d",
        f"{target}.doctrees",
        "docs",
        str(target),
    ]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"AIRFLOW_HOME": f"{target}.home"}, check=True)
    return target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site") / "one")


class Html(HTMLParser):
    """The links, the anchors and the images of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        if tag == "img":
            self.images.append(given)
        self.links += [str(given[name]) for name in ("href", "src") if given.get(name)]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Html]:
    return {str(file.relative_to(site)): Html(file.read_text()) for file in sorted(site.rglob("*.html"))}


def test_two_builds_are_equal(site: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    files = [str(file.relative_to(site)) for file in site.rglob("*") if file.is_file()]
    assert sorted(files) == sorted(str(file.relative_to(again)) for file in again.rglob("*") if file.is_file())
    assert filecmp.cmpfiles(site, again, files, shallow=False)[0] == files


def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(site: Path, pages: dict[str, Html]) -> None:
    broken = []
    for page, html in pages.items():
        for link in html.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", address):
                continue
            address = address.partition("?")[0]
            target = (site / page).parent / unquote(address) if address else site / page
            name = os.path.relpath(target, site)
            if not target.is_file() or (anchor and name in pages and unquote(anchor) not in pages[name].anchors):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_every_picture_is_small_and_described_in_words(site: Path, pages: dict[str, Html]) -> None:
    assert not [(page, image) for page, html in pages.items() for image in html.images if not image.get("alt")]
    pictures = [*(site / "_images").iterdir()]
    assert not [picture.name for picture in pictures if picture.stat().st_size > LARGEST_PICTURE]


def test_the_summary_for_language_models_names_every_page_with_a_sentence(site: Path, pages: dict[str, Html]) -> None:
    rows = re.findall(r"^- \[(.+)\]\((\S+\.html)\): (.+)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {page for _, page, _ in rows} == pages.keys() - {"genindex.html", "search.html"}


def test_other_sites_can_link_to_every_class_and_method(site: Path) -> None:
    rows = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    names = {row.split(" ")[0].removeprefix("airflow_provider_cloudstore.") for row in rows}
    assert {f"operators.cloudstore.{name}" for name in operators.__all__} <= names
    methods = ("delete_folder", "upload_from_url", "create_download_link")
    hooks = {f"hooks.cloudstore.{hook}.{method}" for hook in ("CloudStoreHook", "CloudStoreAsyncHook") for method in methods}
    assert hooks | {"hooks.cloudstore.CloudStoreHook.download", "sensors.cloudstore.FileAvailableSensor"} <= names
    kinds = {
        name for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, exceptions.CloudStoreError)
    }
    assert {f"exceptions.{name}" for name in kinds} <= names


def test_a_link_to_a_missing_file_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(ExtensionError, match=r"nothing is at missing\.md"):
        on_the_site("[words](missing.md)", ROOT / "docs" / "index.md")


def test_a_link_that_leads_out_of_the_docs_leads_to_a_page_or_keeps_its_words() -> None:
    page = ROOT / "docs" / "guides" / "wait.md"
    assert on_the_site("[a](../../CONTRIBUTING.md#x) [b](../../dags_examples/cleanup.py)", page) == (
        "[a](/project/contributing.md#x) [b](/guides/examples.md#cleanuppy)"
    )
    assert on_the_site("[pins](../../constraints)", page) == "pins"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@dataclass
class Visits:
    """What was seen on all pages."""

    requested: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    heights: dict[str, int] = field(default_factory=dict)
    narrow: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def visits(chromium: Any, address: str, pages: dict[str, Html]) -> Visits:
    """Every page in a wide window, then as narrow as a phone."""
    seen, page = Visits(), local_page(chromium)
    page.on("request", lambda request: seen.requested.append(request.url))
    page.on("console", lambda message: seen.errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    for name in pages:
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.goto(address + name)
        seen.heights[name] = page.evaluate("document.querySelector('article')?.scrollHeight ?? 0")
        page.set_viewport_size({"width": PHONE, "height": 844})
        seen.narrow[name] = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    return seen


def test_no_page_reports_an_error_or_requests_anything_from_elsewhere(visits: Visits, address: str) -> None:
    assert visits.errors == []
    assert not [url for url in visits.requested if not url.startswith((address, "data:"))]


def test_no_page_scrolls_sideways_on_a_phone(visits: Visits) -> None:
    assert not {name: width for name, width in visits.narrow.items() if width > PHONE}


def test_no_page_to_be_read_is_longer_than_four_screens(visits: Visits) -> None:
    assert not {name: height for name, height in visits.heights.items() if height > LONGEST and not name.startswith(LONG)}


@pytest.mark.parametrize("name", operators.__all__)
def test_the_search_finds_each_operator_in_the_reference(name: str, chromium: Any, address: str) -> None:
    page = local_page(chromium)
    page.goto(address)
    page.locator("input[name=q]").first.fill(name)
    page.keyboard.press("Enter")
    page.locator("ul.search li a[href*='reference/operators']").first.wait_for()
    page.close()
