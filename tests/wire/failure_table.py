"""The docs as data: how calls end (tables of ``retries`` and ``responses``), and each error (a heading of ``failures``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_cloudstore.protocol.operations import OPERATIONS

_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = [page.read_text() for folder in ("operate", "reference") for page in sorted((_DOCS / folder).glob("*.md"))]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What the page says of an error."""

    retried: bool
    permanent: bool
    statuses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What a call does after something happened; its cells are by operation."""

    what: str
    cells: dict[str, str]

    @property
    def causes(self) -> list[str]:
        """Everything that the row is for."""
        return (self.what.partition(": ")[2] or self.what).split(", ")

    def is_retried(self, operation: str) -> bool:
        """Whether the call sends another request."""
        return self.cells[operation].startswith("retried")

    def error(self, operation: str, status: int) -> str:
        """The error that the call ends with if nothing else happens: the one that the cell names, or that of the status.

        A lost response counts as 5xx.
        """
        cell = self.cells[operation]
        if named := re.search(r"`(\w+Error)`", cell):
            return str(named[1])
        exact = [str(status)] if str(status) in statuses_in(self.what) else []  # a 503 of the row "other 5xx" is one of them
        statuses = [*exact, f"{status // 100}xx", "5xx"]
        return next(name for one in statuses for name, row in ERRORS.items() if one in row.statuses)


def by_operation(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table whose columns name operations, such as ``download link, file info``: the first cell, the others."""
    keys = {operation.name: operation.key for operation in OPERATIONS}
    (line,) = {line for page in _PAGES for line in page.splitlines() if line.startswith(header)}
    columns = [cell.strip().split(", ") for cell in line.strip("|").split("|")][1:]
    for what, *cells in rows(header):
        yield what, {keys[name]: cell for names, cell in zip(columns, cells, strict=True) for name in names if name in keys}


def rows(header: str) -> Iterator[list[str]]:
    """The cells of the table that begins with this header, on whichever page; there is one."""
    (page,) = [page for page in _PAGES if f"\n{header}" in f"\n{page}"]
    table = f"\n{page}".partition(f"\n{header}")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _outcomes() -> Iterator[Row]:
    for what, cells in by_operation("| what happened |"):
        first = next(iter(cells.values()))
        told = {operation: first if cell == "the same" else cell for operation, cell in cells.items()}
        yield Row(re.sub(r"\[(.+?)\]\(.+?\)", r"\1", what), told)


def statuses_in(text: str) -> tuple[str, ...]:
    """The HTTP statuses, and their families, that a cell names."""
    return tuple(re.findall(r"\b[1-5](?:\d\d|xx)\b", text))


_ERROR = re.compile(r"^### (\w+Error)(?: \((.+)\))?\n\n(?:\*(Retried|Permanent)\.\*)?", re.MULTILINE)
ERRORS: dict[str, ErrorRow] = {
    name: ErrorRow(how == "Retried", how == "Permanent", statuses_in(statuses))
    for name, statuses, how in _ERROR.findall((_DOCS / "operate" / "failures.md").read_text())
}
OUTCOMES = list(_outcomes())
ANSWERS = [
    (body, operation, cell.strip("`"))
    for bodies, cells in by_operation("| for example |")
    for body in re.findall(r"`({.*?})`", bodies)
    for operation, cell in cells.items()
]
"""The bodies of responses with HTTP 200, and how each operation ends with them: its error's name, or ``success``."""


def row_for(cause: str) -> Row:
    """The row that has this among its causes, or begins with it."""
    return next(row for row in OUTCOMES if row.what.startswith(cause) or any(cause.startswith(one) for one in row.causes))
