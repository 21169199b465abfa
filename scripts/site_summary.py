"""Writes ``llms.txt``, the site's summary for language models: each page with its first sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def _write(app: Sphinx, failure: Exception | None) -> None:
    if failure or app.builder.name != "html":
        return
    lines = [f"# {app.config.project}", ""]
    for page in sorted(app.env.found_docs, key=_order(app).index):
        tree = app.env.get_doctree(page)
        first = next(iter(tree.findall(nodes.paragraph)), None)
        title = app.env.titles[page].astext()
        sentence = " ".join(first.astext().split()).partition(". ")[0].rstrip(".:") if first else ""
        lines.append(f"- [{title}]({page}.html): {sentence}")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _order(app: Sphinx) -> list[str]:
    """The pages in the order of the site's navigation."""
    found = [app.config.root_doc]
    for page in found:
        found += app.env.toctree_includes.get(page, [])
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx.

    :param app: the build.
    """
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
