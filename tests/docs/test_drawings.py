"""The drawings of the docs are what their texts say."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import drawings

DRAWN = drawings.drawings()


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawing_is_drawn_from_its_text_and_described_for_screen_readers(path: Path) -> None:
    assert path.read_text() == DRAWN[path], "out of date: run make drawings"
    drawn = ElementTree.fromstring(DRAWN[path])
    said = [
        element.text for name in ("title", "desc") if (element := drawn.find(f"{{http://www.w3.org/2000/svg}}{name}")) is not None
    ]
    assert len([words for words in said if words]) == 2
    assert "href" not in DRAWN[path]
