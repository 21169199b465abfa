"""``docs/project/architecture.md`` lists each name that no documentation of its library promises, and each exists."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "airflow_provider_cloudstore"
AIRFLOW = Version(version("apache-airflow"))


@dataclass(frozen=True)
class Row:
    module: str
    path: str
    versions: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def is_used(self) -> bool:
        """Whether the package uses the name with the running Airflow."""
        if not self.versions:
            return True
        if since := re.fullmatch(r"Airflow (\S+) and later", self.versions):
            return Version(since[1]) <= AIRFLOW
        before = re.fullmatch(r"Airflow before (\S+)", self.versions)
        assert before, f"not understood: ({self.versions})"
        return Version(before[1]) > AIRFLOW


def table() -> list[Row]:
    page = (ROOT / "docs" / "project" / "architecture.md").read_text().partition("## Undocumented names")[2]
    lines = [line for line in page.splitlines() if line.startswith("- `")]
    names = [re.match(r"- `([\w.]+):([\w.]+)`(?: \((.*)\))? in `([\w./]+)`: ", line) for line in lines]
    assert all(names), "a line is - `module:attribute` (Airflow X and later, or Airflow before X) in `file`: why"
    return [Row(found[1], found[2], found[3] or "", (found[4],)) for found in names if found]


ROWS = table()


def has(owner: Any, name: str) -> bool:
    """Whether a module or class has a name; for a class also whether its module assigns it to ``self``."""
    if hasattr(owner, name) or not inspect.isclass(owner):
        return hasattr(owner, name)
    source = inspect.getsource(sys.modules[owner.__module__])
    return re.search(rf"\bself\.{name}(: [^=\n]+)? = ", source) is not None


def exists(row: Row) -> bool:
    try:
        owner: Any = import_module(row.module)
    except ImportError:
        return False
    *parents, name = row.path.split(".")
    for parent in parents:
        if not hasattr(owner, parent):
            return False
        owner = getattr(owner, parent)
    return has(owner, name)


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_used], ids=lambda row: f"{row.module}:{row.path}")
def test_a_name_of_the_table_exists(row: Row) -> None:
    assert exists(row)


def test_the_table_names_the_files_that_use_a_name() -> None:
    for row in ROWS:
        using = {file for file in row.files if re.search(rf"\b{row.name}\b", (PACKAGE / file).read_text())}
        assert using == set(row.files) != set(), row


def test_every_private_name_of_a_library_is_in_the_table() -> None:
    used = accessed() | set(overridden())
    assert used == {row.name for row in ROWS if is_private(row.name)}


def test_operators_cannot_be_imported_from_an_airflow_that_would_store_urls_in_clear_text() -> None:
    without = """
from airflow.providers.common.compat.sdk import BaseOperator
for owner in BaseOperator.__mro__:
    if "_do_render_template_fields" in vars(owner):
        del owner._do_render_template_fields
import airflow_provider_cloudstore.operators.cloudstore
"""
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert "ImportError: This Airflow has no BaseOperator._do_render_template_fields" in done.stderr


def is_private(name: str) -> bool:
    return name.startswith("_") and len(name) > 1 and not name.endswith("__")


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith(PACKAGE.name)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in PACKAGE.rglob("*.py"):
        yield ".".join(file.relative_to(ROOT).with_suffix("").parts), ast.parse(file.read_text())


def accessed() -> set[str]:
    """The private names that the package reads, sets or imports, and defines nowhere."""
    used: set[str] = set()
    own: set[str] = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    own.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Attribute(attr=name):
                    used.add(name)
                case ast.ImportFrom(module=str(module), names=names) if not module.startswith(PACKAGE.name):
                    used |= {*module.split("."), *(alias.name for alias in names)}
                case ast.Import(names=names):
                    used |= {part for alias in names for part in alias.name.split(".")}
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                    used.add(name)
    return {name for name in used - own if is_private(name)}


def overridden() -> Iterator[str]:
    """The private names that classes of the package, nested ones included, define over those of a library's class."""
    for module_name, tree in trees():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        module = import_module(module_name)
        for node in classes:
            bases = {base for expression in node.bases for base in ancestors(module, expression)}
            for name in filter(is_private, defined_in(node)):
                if any(name in vars(base) for base in bases):
                    yield name


def ancestors(module: ModuleType, base: ast.expr) -> list[type]:
    """The classes of libraries from which a base class inherits; none for a base that only exists within a function."""
    try:
        found = reduce(getattr, ast.unparse(base).partition("[")[0].split("."), module)
    except AttributeError:
        return []
    return [kind for kind in getattr(found, "__mro__", ()) if not is_ours(kind)]


def defined_in(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value:
                yield name
