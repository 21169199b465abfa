"""Where a link of a page leads on the site that, in the repository, leads out of ``docs/``.

The pages link to files as the repository's host needs it. On the site, root pages are pages of their own, the examples are one
page, and any other file is a link to the repository if the project has a home, otherwise its name. A link to a missing file ends
the build. A drawing gets its dark twin.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


_LIGHT = re.compile(r"!\[([^\]]+)\]\(([^)]+)-light\.svg\)")
_BOTH = r"![\1](\2-light.svg){.only-light}\n![\1](\2-dark.svg){.only-dark}"


def home() -> str:
    """The URL of the project's repository, without a trailing slash; empty if it has none."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["home"]).rstrip("/")


def on_the_site(text: str, file: Path) -> str:
    """A page's text with links that work on the site.

    :param text: the Markdown.
    :param file: the file that it comes from, which its links are relative to.
    :raises ExtensionError: if a link leads to nothing.
    """

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], (file.parent / match[2]).resolve(), match[3] or ""
        if not target.exists():
            raise ExtensionError(f"{file.relative_to(ROOT)}: nothing is at {match[2]}")
        path = target.relative_to(ROOT).as_posix()
        if path in _PAGES:
            target = DOCS / _PAGES[path]
        elif path.startswith("dags_examples/"):
            target, anchor = DOCS / "guides" / "examples.md", "#" + re.sub(r"[^a-z_]", "", target.name)
        elif not target.is_relative_to(DOCS):
            return f"[{words}]({home()}/blob/main/{path})" if home() else words
        named = "" if words == Path(match[2]).name else words  # the site fills in the page's title
        return f"[{named}](/{target.relative_to(DOCS).as_posix()}{anchor})"

    return _LINK.sub(link, _LIGHT.sub(_BOTH, text))


def _read(app: Sphinx, page: str, content: list[str]) -> None:
    content[0] = on_the_site(content[0], Path(app.env.doc2path(page)))


def _included(_: Sphinx, file: Path, page: str, content: list[str]) -> None:
    content[0] = on_the_site(content[0], (DOCS / file).resolve())


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx.

    :param app: the build.
    """
    app.connect("source-read", _read)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True}
