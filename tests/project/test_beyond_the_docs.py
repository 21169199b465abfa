"""``docs/project/architecture.md`` lists each name that no documentation of its library promises, and each exists."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.support import HAS_RETRY_POLICIES

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "airflow_provider_cloudstore"
TABLE = (ROOT / "docs" / "project" / "architecture.md").read_text().partition("## Undocumented names")[2]
ROWS: list[tuple[str, str, str, str]] = re.findall(
    r"^- `([\w.]+):([\w.]+)`(?: \(Airflow (\S+) and later\))? in `([\w./]+)`: ", TABLE, re.MULTILINE
)
"""The module of each name, the path to it there, the Airflow version that it came with, if not all have it, and who uses it."""


def test_each_line_of_the_table_is_understood() -> None:
    assert len(ROWS) == len(re.findall(r"^- ", TABLE, re.MULTILINE))


@pytest.mark.parametrize(("module", "path", "since", "file"), ROWS, ids=str)
def test_a_name_of_the_table_is_used_and_exists(module: str, path: str, since: str, file: str) -> None:
    *parents, name = path.split(".")
    assert re.search(rf"\b{name}\b", (PACKAGE / file).read_text())
    if not since or Version(since) <= Version(version("apache-airflow")):
        owner: Any = reduce(getattr, parents, import_module(module))
        is_of_instances = inspect.isclass(owner) and re.search(rf"\bself\.{name}(: [^=\n]+)? = ", inspect.getsource(owner))
        assert hasattr(owner, name) or is_of_instances


def test_every_private_name_of_a_library_that_is_overridden_is_in_the_table() -> None:
    # That no other is used, ruff says (SLF).
    assert set(overridden()) == {name for _, path, _, _ in ROWS if is_private(name := path.rpartition(".")[2])}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def overridden() -> Iterator[str]:
    """The private names that classes of the package define over those of a library's class."""
    for file in PACKAGE.rglob("[a-z]*.py"):
        if file.parent.name == "retry_policies" and not HAS_RETRY_POLICIES:  # it refuses to be imported
            continue
        module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        # A metaclass makes others.
        written = re.findall(r"^    (?:async def |def )?(_\w+)", file.read_text(), re.MULTILINE)
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                for base in kind.__mro__:
                    if not base.__module__.startswith(PACKAGE.name):
                        yield from (name for name in vars(kind).keys() & vars(base).keys() & {*written} if is_private(name))
