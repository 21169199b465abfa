"""The docs as data: how calls end, in the tables of ``docs/operate/retries.md`` and ``docs/operate/responses.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_cloudstore.protocol.operations import OPERATIONS

_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = [page.read_text() for page in sorted((_DOCS / "operate").glob("*.md"))]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What the table says of an error."""

    permanent: bool


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

    def error(self, operation: str) -> str:
        """The name of the error that the call ends with if nothing else happens."""
        return str(re.findall(r"`(\w+Error)`", self.cells[operation])[0])


def by_operation(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table whose columns are operations: the first cell, and the others by the operation's key."""
    keys = {operation.name: operation.key for operation in OPERATIONS}
    (line,) = {line for page in _PAGES for line in page.splitlines() if line.startswith(header)}
    columns = [keys[cell.strip()] for cell in line.strip("|").split("|")[1:]]
    for what, *cells in rows(header):
        yield what, dict(zip(columns, cells, strict=True))


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
        # An operation without a column ends as a link does if it may be repeated, or else as an upload does.
        others = {True: told["link"], False: told["upload"]}
        told = {one.key: others[getattr(one, "may_be_repeated", False)] for one in OPERATIONS} | told
        yield Row(re.sub(r"\[(.+?)\]\(.+?\)", r"\1", what), told)


OUTCOMES = list(_outcomes())
ERRORS: dict[str, ErrorRow] = {
    name: ErrorRow("permanent" in cell)
    for row in OUTCOMES
    for cell in row.cells.values()
    for name in re.findall(r"`(\w+Error)`", cell)
}
"""The errors of the table, by their names."""
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
