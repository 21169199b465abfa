"""What is released agrees with its changelog and its tag."""

from __future__ import annotations

import os
import re
from pathlib import Path

from airflow_provider_cloudstore import __version__

CHANGELOG = Path(__file__).resolve().parent.parent.parent / "CHANGELOG.md"


def test_the_version_is_the_newest_of_the_changelog_and_that_of_the_tag() -> None:
    assert re.findall(r"^## (\S+)", CHANGELOG.read_text(), re.MULTILINE)[:1] == [__version__]
    assert os.environ.get("TAG") in (None, "", f"v{__version__}"), "make package TAG=... hands over the tag of a release"
