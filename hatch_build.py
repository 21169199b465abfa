"""Builds the wheel's long description from the README, whose relative links do not work outside the repository.

If ``pyproject.toml`` sets ``home``, they become absolute; otherwise only their text is kept.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """Hatchling's hook for the dynamic fields of ``pyproject.toml``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description and the project's URL.

        :param metadata: the project's metadata; modified.
        """
        url = str(self.config.get("home", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, url)}
        metadata["urls"] = {"Homepage": url} if url else {}


def long_description(readme: str, url: str) -> str:
    """The README without relative links.

    :param readme: its text.
    :param url: the base URL of the repository's files, without a trailing slash; empty for none.
    """
    return _RELATIVE_LINK.sub(rf"[\1]({url}/\2)" if url else r"\1", readme)
