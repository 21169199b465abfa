"""Makes the wheel's long description of the README: outside the checkout a relative link leads nowhere.

With ``project-url`` set in ``pyproject.toml`` such a link becomes an absolute one; without, only its text stays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """Hatchling's hook for the fields that ``pyproject.toml`` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description, and the project's URL where there is one.

        :param metadata: the project's metadata, changed in place.
        """
        url = str(self.config.get("project-url", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, url)}
        metadata["urls"] = {"Homepage": url} if url else {}


def long_description(readme: str, url: str) -> str:
    """The README without relative links.

    :param readme: its text.
    :param url: the folder in which the README's neighbours can be read, without a slash at the end; empty if there is none.
    """
    return _RELATIVE_LINK.sub(rf"[\1]({url}/\2)" if url else r"\1", readme)
