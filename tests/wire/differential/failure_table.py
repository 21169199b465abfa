"""The tables of ``docs/failures.md`` as data: which error a response to a call ends with, and what is true of each error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.wire.differential.responses import Kind, RawResponse, Says

_PAGE = (Path(__file__).parents[3] / "docs" / "failures.md").read_text()
_OPERATIONS = ("delete", "upload", "link")
_LOST, _LIKE_LOST = "sent, outcome unknown", "5xx"
_ROWS = {Says.AN_ERROR: "2xx whose body reports an error", Says.NOTHING: "2xx that is not"}
_VALID_RETRY_AFTER = re.compile(r"[0-9]+|.* 2100 .* GMT")
"""Seconds or a date to come (RFC 9110 section 10.2.3), of those that the responses have."""


@dataclass(frozen=True, slots=True)
class _ErrorRow:
    """What the first table says of an error.

    :param statuses: the HTTP statuses that it is for, such as ``404`` and ``5xx``.
    """

    retried: bool
    permanent: bool
    statuses: tuple[str, ...]


def _rows(header: str) -> Iterator[list[str]]:
    """The cells of the table that begins with this header."""
    table = _PAGE.partition(f"\n{header}")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _statuses(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\b[1-5](?:\d\d|xx)\b", cell))


ERRORS: dict[str, _ErrorRow] = {
    name: _ErrorRow(retried == "yes", permanent == "yes", _statuses(cell))
    for cell, retried, permanent, _ in _rows("| error | retried |")
    for name in re.findall(r"`(\w+Error)`", cell)
}
"""What the page says of each error."""
_OUTCOMES = {what: cells for what, *cells in _rows("| what happened | delete folder | remote upload |")}


def is_rate_limit(response: RawResponse) -> bool:
    """Whether a response asks to come again later, and nothing was done."""
    retry_after = response.headers.get("retry-after", "")
    return response.status == 429 or (response.status == 503 and _VALID_RETRY_AFTER.fullmatch(retry_after) is not None)


def expected_error(operation: str, response: RawResponse) -> str | None:
    """The error of a call that gets nothing but this response; empty for success, None if the tables alone do not say.

    :param operation: which one.
    :param response: the response, valid or truncated.
    """
    if response.kind is Kind.TRUNCATED:
        return _error_in(_cell(_LOST, operation), _LIKE_LOST)
    if 200 <= response.status < 300:
        return _error_of_success(operation, response)
    exact, family = str(response.status), f"{response.status // 100}xx"
    if exact == "503" and not is_rate_limit(response):
        exact = family
    row = next((what for what in _OUTCOMES if exact in _statuses(what)), None)
    row = row or next((what for what in _OUTCOMES if family in _statuses(what) and not what.startswith("2xx")), None)
    return row and _error_in(_cell(row, operation), exact, family, _LIKE_LOST)


def _error_of_success(operation: str, response: RawResponse) -> str | None:
    if response.says is None:
        return None
    if response.says is Says.DONE and not (operation == "link" and response.token is None):
        return ""
    return _error_in(_cell(_ROWS.get(response.says, "2xx without a download token"), operation), "2xx")


def _cell(start: str, operation: str) -> str:
    cells = next(cells for what, cells in _OUTCOMES.items() if what.startswith(start))
    at = _OPERATIONS.index(operation)
    while cells[at] == "the same":
        at -= 1
    return cells[at]


def _error_in(cell: str, *statuses: str) -> str:
    """The error that a cell names, or else the one of the first of the statuses that the table of errors has."""
    if named := re.findall(r"`(\w+Error)`", cell):
        return str(named[0])
    return next(name for status in statuses for name, row in ERRORS.items() if status in row.statuses)
