"""What the drawings of the docs look like: SVGs, light and dark, from a text of one line for each shape.

A line is a kind, coordinates, ``|`` and words; ``/`` breaks a line. Coordinates are those of the SVG: 600 wide, so that its text
stays legible on a phone. The light SVG has a white background, because hosts of repositories show it on dark pages, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

DRAWINGS = Path(__file__).resolve().parent.parent / "docs" / "drawings"
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Helvetica, Arial, sans-serif"
CODE = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
SIZE, LINE = 18, 23
THEMES = {
    "light": {
        "page": "#ffffff",
        "text": "#1b1f24",
        "quiet": "#4f5963",
        "line": "#57606a",
        "box": "#f2f5f8",
        "key": "#dcebfa",
        "accent": "#0b5fae",
        "warn": "#fdebd8",
        "alarm": "#a04400",
    },
    "dark": {
        "page": "none",
        "text": "#e8ebee",
        "quiet": "#aab4be",
        "line": "#93a0ad",
        "box": "#23282e",
        "key": "#12304d",
        "accent": "#6cb6ff",
        "warn": "#452a10",
        "alarm": "#f5a962",
    },
}
BOXES = {"box": ("box", "line"), "key": ("key", "accent"), "warn": ("warn", "alarm"), "ask": ("page", "line")}
"""The colors of each kind of box, inside and around. Its words are in the color of text."""
WRITING = {
    "text": ("middle", "text", ""),
    "left": ("start", "text", ""),
    "right": ("end", "text", ""),
    "head": ("start", "text", ' font-weight="600"'),
    "note": ("start", "quiet", ""),
    "code": ("middle", "text", f' font-family="{CODE}"'),
    "alarm": ("middle", "alarm", ""),
}
"""The anchor, the color and the font of each kind of words."""


def main() -> None:
    """Write every drawing."""
    for path, drawn in drawings().items():
        path.write_text(drawn)


def drawings() -> dict[Path, str]:
    """What the texts look like, by the files that they belong to."""
    return {
        path: drawn
        for source in sorted(DRAWINGS.glob("*.txt"))
        for path, drawn in both(source.with_suffix(""), source.read_text()).items()
    }


def both(path: Path, description: str) -> dict[Path, str]:
    """The light and the dark SVG of a description.

    :param path: where they belong, without ``-light.svg`` and ``-dark.svg``.
    :param description: the lines.
    """
    return {path.with_name(f"{path.name}-{theme}.svg"): svg(description, colors) for theme, colors in THEMES.items()}


def svg(description: str, colors: dict[str, str]) -> str:
    """One SVG.

    :param description: the lines.
    :param colors: one of ``THEMES``.
    """
    said, shapes = {"title": "", "desc": "", "size": ""}, list[str]()
    for line in description.splitlines():
        if not line.strip():
            continue
        head, _, words = line.partition("|")
        kind, *numbers = head.split()
        if kind in said:
            said[kind] = words.strip()
        else:
            shapes += draw(kind, [int(number) for number in numbers], words.strip(), colors)
    width, height = said["size"].split()
    heads = "".join(
        f'<marker id="{role}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0 10 5 0 10z" fill="{colors[role]}"/></marker>'
        for role in ("line", "alarm")
    )
    background = [f'<rect width="{width}" height="{height}" fill="{colors["page"]}"/>'] if colors["page"] != "none" else []
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-labelledby="title desc" font-family="{FONT}" font-size="{SIZE}">',
            f'<title id="title">{escape(said["title"])}</title>',
            f'<desc id="desc">{escape(said["desc"])}</desc>',
            f"<defs>{heads}</defs>",
            *background,
            *shapes,
            "</svg>\n",
        ]
    )


def draw(kind: str, numbers: list[int], words: str, colors: dict[str, str]) -> Iterator[str]:
    """The elements of one line.

    :param kind: of shape.
    :param numbers: its coordinates.
    :param words: in, at or above it.
    :param colors: of the theme.
    :raises ValueError: if there is no such kind.
    """
    if kind in BOXES:
        yield from _box(kind, numbers, words, colors)
    elif kind in WRITING:
        x, y = numbers
        yield from _words(kind, x, y, words, colors)
    elif kind in {"arrow", "line", "rail", "stop"}:
        yield from _line(kind, numbers, words, colors)
    elif kind == "dot":
        x, y = numbers
        yield f'<circle cx="{x}" cy="{y}" r="8" fill="{colors["accent"]}"/>'
    elif kind == "cross":
        x, y = numbers
        yield f'<path d="M{x - 9} {y - 9}l18 18m0-18l-18 18" stroke="{colors["alarm"]}" stroke-width="5"/>'
    else:
        raise ValueError(f"no shape is called {kind}")


def _box(kind: str, numbers: list[int], words: str, colors: dict[str, str]) -> Iterator[str]:
    x, y, width, height = numbers
    fill, stroke = (colors[role] for role in BOXES[kind])
    corner = height // 2 if kind == "ask" else 6
    place = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="{corner}"'
    yield f'<rect {place} fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
    if words:
        lines = words.count(" / ") + 1
        yield from _words("text", x + width // 2, y + (height - lines * LINE) // 2 + SIZE, words, colors)


def _line(kind: str, numbers: list[int], words: str, colors: dict[str, str]) -> Iterator[str]:
    path = "M" + " ".join(str(number) for number in numbers)
    role = "alarm" if kind == "stop" else "line"
    style = {"rail": ' stroke-dasharray="3 5"', "line": ""}.get(kind, f' marker-end="url(#{role})"')
    width = 1 if kind == "rail" else 2
    yield f'<path d="{path}" fill="none" stroke="{colors[role]}" stroke-width="{width}"{style}/>'
    if words:  # above the middle of the first stretch, or to its right
        x1, y1, x2, y2 = numbers[:4]
        x, y = (x1 + x2) // 2, (y1 + y2) // 2
        if y1 == y2:
            yield from _words("text", x, y - 8 - words.count(" / ") * LINE, words, colors)
        else:
            yield from _words("left", x + 10, y + 6, words, colors)


def _words(kind: str, x: int, y: int, words: str, colors: dict[str, str]) -> Iterator[str]:
    anchor, role, font = WRITING[kind]
    for number, line in enumerate(words.split(" / ")):
        place = f'x="{x}" y="{y + number * LINE}" text-anchor="{anchor}"'
        yield f'<text {place} fill="{colors[role]}"{font}>{escape(line)}</text>'


if __name__ == "__main__":
    main()
