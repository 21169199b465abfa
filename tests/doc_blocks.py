"""Extracts the code blocks of README and docs, so that tests run the code that readers copy."""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_airflow import AIRFLOW_2

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

INSTALL = ROOT / "docs" / "start" / "install.md"
ON_AIRFLOW_2: dict[str, str] = dict(
    re.findall(r"^\| `(from airflow\.sdk[\w.]* import \w+)` \| `(.+)` \|$", INSTALL.read_text(), re.MULTILINE)
)
"""For each import of the examples and pages what to write on Airflow 2, as the page about the installation says."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code in a page, verbatim."""

    name: str
    code: str


def blocks(page: Path, language: str = "python") -> list[Block]:
    """A page's blocks in one language, named ``page.md-0``, ``page.md-1`` and so on; lines that end in a backslash are joined."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), re.DOTALL | re.MULTILINE)
    if language == "console":
        found = [(indent, re.sub(r"\\\n *", "", code)) for indent, code in found]
    return [Block(f"{page.name}-{number}", textwrap.dedent(code)) for number, (_, code) in enumerate(found)]


def commands(block: Block) -> list[str]:
    """A console block's commands: one a line, but for what is within quotes."""
    found, started = [], ""
    for line in block.code.splitlines():
        started += line
        if started.count("'") % 2 == 0:
            found.append(started)
            started = ""
    return found


PYTHON = [block for page in PAGES for block in blocks(page)]


def for_this_airflow(code: str) -> str:
    """Code of a page or an example with the names of this Airflow."""

    def exchanged(found: re.Match[str]) -> str:
        return "\n".join(ON_AIRFLOW_2[f"from {found[1]} import {name}"] for name in found[2].split(", "))

    if not AIRFLOW_2:
        return code
    return re.sub(r"^from (airflow\.sdk[\w.]*) import (.+)$", exchanged, code, flags=re.MULTILINE)


def names_in(code: str, file: Path) -> dict[str, Any]:
    """What the code of a DAG file defines."""
    names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
    exec(compile(for_this_airflow(code), str(file), "exec"), names)
    return names


def example(file: Path) -> dict[str, Any]:
    """What an example defines."""
    return names_in(file.read_text(), file)


def code_of(name: str) -> str:
    """The code of the block with that name."""
    return next(block.code for block in PYTHON if block.name == name)


def dag_of(name: str, code: str | None = None) -> Any:
    """The DAG of a block, written to a bundle of its own, because Airflow runs only files of a bundle.

    :param code: a complete DAG file to use instead, if the block is only a fragment.
    """
    file = Path(os.environ["AIRFLOW_HOME"]) / "dags" / "blocks" / f"{re.sub(r'[.-]', '_', name)}.py"
    for earlier in file.parent.glob("*.py"):
        earlier.unlink()
    file.write_text(for_this_airflow(code or code_of(name)))
    return names_in(file.read_text(), file)["dag"]
