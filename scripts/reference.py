"""Writes ``docs/reference/api.md`` from the docstrings and signatures; with ``--check``, fails if the page is out of date."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_cloudstore.operators import cloudstore as operators
from airflow_provider_cloudstore.protocol import errors, results
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS
from airflow_provider_cloudstore.provider_info import CONN_FIELDS
from scripts.airflow_home import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"
PACKAGE = "airflow_provider_cloudstore"
_INTRODUCTION = """\
# Reference

Generated from the docstrings by `make docs`; do not edit. Times are in seconds, sizes in bytes.
Every operator and sensor also accepts the arguments of Airflow's `BaseOperator` or `BaseSensorOperator`.
In the column *template*, *yes* marks template fields.
"""
_ROLE = re.compile(r":\w+:`~?([\w.]+)`")
_FIELD = re.compile(r"^:(param|raises|returns|ivar)(?: (\w+))?: ?(.*)$")


@dataclass(slots=True)
class Docstring:
    """A parsed docstring: its text, parameters, exceptions and return value."""

    text: str
    params: dict[str, str]
    raises: list[tuple[str, str]]
    returns: str


def main(arguments: list[str]) -> int:
    """Write the page, or check it.

    :param arguments: the command line, without the program's name.
    :returns: 0 if the page was written or is up to date.
    """
    page = reference()
    if "--check" not in arguments:
        PAGE.write_text(page)
        return 0
    if PAGE.exists() and PAGE.read_text() == page:
        return 0
    print("docs/reference/api.md is out of date: run make docs", file=sys.stderr)
    return 1


def reference() -> str:
    """The whole page."""
    parts = [
        _INTRODUCTION,
        "## Operators\n",
        *_operators(),
        "## Sensors\n",
        *(_class(kind) for kind in _classes("sensors")),
        "## Hooks\n",
        *(_class(kind, methods=True) for kind in _classes("hooks") if issubclass(kind, BaseHook)),
        "## Results of the hook's methods\n",
        "Values of `airflow_provider_cloudstore.protocol.results`; an operator's XCom is `to_dict()` of one of them.\n",
        *(_class(vars(results)[name]) for name in _class_names(results)),
        "## Triggers\n",
        *(_class(kind) for kind in _classes("triggers")),
        _extras(),
        _errors(),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _operators() -> Iterator[str]:
    """The operators with the import path in the README, then the other classes except base classes."""
    exported = [vars(operators)[name] for name in operators.__all__]
    found = [*_classes("operators")]
    bases = {base for kind in found for base in kind.__mro__[1:]}
    yield from (_class(kind, module=operators.__name__) for kind in exported)
    yield from (_class(kind) for kind in found if kind not in bases and kind not in exported)


def _classes(folder: str) -> Iterator[type]:
    """The public classes of a folder's modules, in the order of their source."""
    package = importlib.import_module(f"{PACKAGE}.{folder}")
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        yield from (vars(module)[name] for name in _class_names(module))


def _class_names(module: ModuleType) -> list[str]:
    tree = ast.parse(inspect.getsource(module))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def _class(kind: type, *, methods: bool = False, module: str = "") -> str:
    doc = _parse(kind)
    lines = [f"### `{kind.__name__}`\n", f"`from {module or kind.__module__} import {kind.__name__}`\n", doc.text + "\n"]
    lines += _parameters(kind, doc)
    lines += _raises(doc)
    if methods:
        own = [member for name, member in vars(kind).items() if inspect.isfunction(member) and not name.startswith("_")]
        lines += [_method(member) for member in own if member.__doc__]
    return "\n".join(lines)


def _method(function: Any) -> str:
    doc = _parse(function)
    node = _function_node(function)
    arguments = ", ".join(_signature(node))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    start = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    lines = [f"#### `{start}{function.__name__}({arguments}){returns}`\n", doc.text + "\n"]
    lines += [f"- `{name}`: {text}" for name, text in doc.params.items()]
    lines += [f"- returns: {doc.returns}"] if doc.returns else []
    lines += [f"- raises `{name}`: {text}" for name, text in doc.raises]
    return "\n".join(lines) + "\n"


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = node.args
    positional = [one for one in arguments.args if one.arg not in ("self", "cls")]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for one, default in zip(positional, defaults, strict=True):
        yield one.arg + (f"={ast.unparse(default)}" if default else "")
    if arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield one.arg + (f"={ast.unparse(default)}" if default else "")


def _function_node(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return node


def _parameters(kind: type, doc: Docstring) -> list[str]:
    if not doc.params:
        return []
    values = inspect.signature(kind).parameters
    templates: Any = getattr(kind, "template_fields", None)
    head = ["parameter", "type", "default", *(["template"] if templates else []), "meaning"]
    lines = [_row(head), _row(["---"] * len(head))]
    for name, text in doc.params.items():
        value = values[name]
        template = ["yes" if name in templates else ""] if templates else []
        type_name = str(value.annotation).replace("'", '"')
        lines.append(_row([f"`{name}`", f"`{type_name}`", _default(kind, value), *template, text]))
    return [*lines, ""]


def _default(kind: type, value: inspect.Parameter) -> str:
    """A default as written in the source: a setting of Airflow is named, not evaluated."""
    if value.default is inspect.Parameter.empty:
        return "required"
    if "dataclass" in type(value.default).__name__ or type(value.default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return ""
    source = "".join(inspect.getsource(one) for one in kind.__mro__ if one.__module__.startswith(PACKAGE))
    setting = re.search(rf'\b{value.name}: [^=\n]+= conf\.get\w*\("(\w+)", "(\w+)"', source)
    return f"`[{setting[1]}] {setting[2]}`" if setting else f"`{value.default!r}`"


def _raises(doc: Docstring) -> list[str]:
    return [*(f"Raises `{name}` {text}" for name, text in doc.raises), ""] if doc.raises else []


def _extras() -> str:
    missing = EXTRA_KEYS ^ CONN_FIELDS.keys()
    assert not missing, f"extras without a field in the form, or the other way round: {sorted(missing)}"
    lines = ["## Extras of the connection\n", _row(["extra", "type", "in the form", "meaning"]), _row(["---"] * 4)]
    for name, field in CONN_FIELDS.items():
        types = field["schema"]["type"]
        names = ", ".join(one for one in ([types] if isinstance(types, str) else types) if one != "null")
        lines.append(_row([f"`{name}`", names, field["label"], field["description"]]))
    return "\n".join(lines) + "\n"


def _errors() -> str:
    doc = _parse(errors.CloudStoreError)
    lines = [
        "## Errors\n",
        f"Import them from `{errors.__name__}`, also for `except`. A permanent error is a `PermanentError`,",
        "and so an `AirflowFailException`. *Retried*: by the same call, within its attempts and time budget.",
        "*Permanent*: Airflow does not retry the task. Attributes of every error:\n",
        *(f"- `{name}`: {text}" for name, text in doc.params.items()),
        "",
        _row(["error", "is a", "retried", "permanent", "raised for", "hint"]),
        _row(["---"] * 6),
    ]
    for name in _class_names(errors):
        kind: type[errors.CloudStoreError] = vars(errors)[name]
        base = f"`{kind.__bases__[0].__name__}`"
        flags = ["yes" if flag else "no" for flag in (kind.retryable, kind.permanent)]
        lines.append(_row([f"`{name}`", base, *flags, _parse(kind).text, str(kind.hint)]))
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _parse(thing: Any) -> Docstring:
    found = Docstring("", {}, [], "")
    text: list[str] = []
    fields: list[list[str]] = []
    for line in inspect.cleandoc(thing.__doc__ or "").splitlines():
        if match := _FIELD.match(line):
            fields.append([match[1], match[2] or "", match[3]])
        elif fields and line.startswith(" "):
            fields[-1][2] += " " + line.strip()
        elif not fields:
            text.append(line)
    for role, name, description in fields:
        match role:
            case "param":
                found.params[name] = _markdown(description)
            case "raises":
                found.raises.append((name, _markdown(description)))
            case "returns":
                found.returns = _markdown(description)
    found.text = _markdown("\n".join(text).strip())
    return found


def _markdown(text: str) -> str:
    return _ROLE.sub(lambda role: f"`{role[1].rsplit('.', 1)[-1]}`", text).replace("``", "`")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
