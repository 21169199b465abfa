"""Fills in what the wheel has and the repository keeps elsewhere: examples, the long description and the project's addresses.

The README's relative links and pictures work in the repository only. If ``pyproject.toml`` names the project's home, they become
absolute; otherwise a link keeps its text, and a picture goes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = r"\((?![a-z]+:|#)([^)\s]+)\)"
_PICTURE = re.compile(rf"!\[([^\]]*)\]{_RELATIVE}")
_LINK = re.compile(rf"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]{_RELATIVE}")  # around words, or around a picture


class Examples(BuildHookInterface[Any]):
    """Hatchling's hook for the files of the wheel: Airflow looks for a provider's examples in its folder ``example_dags``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the examples, except to an editable installation, which would keep an old copy.

        :param version: ``editable``, or the standard wheel.
        :param build_data: what the wheel contains; modified.
        """
        if version != "editable":
            build_data["force_include"]["dags_examples"] = "airflow_provider_cloudstore/example_dags"


class Metadata(MetadataHookInterface):
    """Hatchling's hook for the dynamic fields of ``pyproject.toml``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description and the project's URLs.

        :param metadata: the project's metadata; modified.
        """
        home = str(self.config.get("home", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, home)}
        metadata["urls"] = urls(home)


def urls(home: str) -> dict[str, str]:
    """What the package index and Airflow's Providers page link to; Airflow reads ``Documentation``.

    :param home: the URL of the repository, without a trailing slash; empty for none.
    """
    if not home:
        return {}
    pages = {"Documentation": "#readme", "Changelog": "/blob/main/CHANGELOG.md", "Source": "", "Issues": "/issues"}
    return {"Homepage": home} | {name: home + path for name, path in pages.items()}


def long_description(readme: str, home: str) -> str:
    """The README without relative links.

    :param readme: its text.
    :param home: the URL of the repository, without a trailing slash; empty for none.
    """
    readme = _PICTURE.sub(rf"![\1]({home}/raw/main/\2)" if home else "", readme)
    return _LINK.sub(rf"[\1]({home}/blob/main/\2)" if home else r"\1", readme)
