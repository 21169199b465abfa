"""What the system tests prove: a row of ``docs/operate/guarantees-*.md`` for each fault, with the figures of its test's last run.

A test says with :func:`guarantee` which promise it proves in which fault, and hands its figures to the fixture ``proven``, which
checks them and, on the newest Airflow, keeps them for ``make guarantees``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(sorted((ROOT / "docs" / "operate").glob("guarantees*.md")))
"""The pages with tables; each table is on one of them."""
FIGURES = ROOT / ".guarantees"
"""Where tests leave their figures: a file for each row."""
HEAD = ("fault", "requests", "effects", "sent twice", "at most", "lost", "recovered after", "proven by")
_NEWEST = f"\nNEW := {version('apache-airflow')}\n" in (ROOT / "Makefile").read_text()
"""Whether this is the Airflow whose figures the page shows."""
_FILE = re.compile(r"tests/[\w/]+\.py")
_TABLE = re.compile(r"(<!-- proven: (?P<promise>[\w-]+) -->\n)(?P<rows>.*?)(<!-- end -->)", re.DOTALL)


def guarantee(promise: str, fault: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of a promise; both arguments must be literals, so that a fast test can read them.

    :param promise: a table of ``docs/operate/guarantees-*.md``.
    :param fault: what is killed, frozen, away or odd; the row of that table.
    """
    return pytest.mark.guarantee(promise, fault)


@dataclass(frozen=True, slots=True)
class Row:
    """A row: None is a figure that the fault does not have.

    ``requests`` arrived at the service, ``effects`` are what they did there, ``twice`` of them were sent again although they had
    arrived, at most ``at_most``; ``lost`` is what the pipeline asked for and never got; ``seconds`` from the fault, or from its
    end if it has one, until work went on. ``test`` is the test's file, which contains the fault's words.
    """

    fault: str
    requests: int | None
    effects: int | None
    twice: int | None
    at_most: int | None
    lost: int | None
    seconds: float | None
    test: str

    def cells(self) -> tuple[str, ...]:
        """Return it as the page shows it."""
        figures = (self.requests, self.effects, self.twice, self.at_most, self.lost)
        time = "" if self.seconds is None else f"{self.seconds:.0f} s" if self.seconds >= 10 else f"{self.seconds:.1f} s"
        file = _FILE.findall(self.test)[0]
        link = f"[{Path(file).name}](../../{file})"
        return (self.fault, *("" if figure is None else f"{figure:,}" for figure in figures), time, link)

    @classmethod
    def of(cls, cells: tuple[str, ...]) -> Self:
        """Return the row that the page shows."""
        fault, *figures, time, test = cells
        requests, effects, twice, at_most, lost = [int(figure.replace(",", "")) if figure else None for figure in figures]
        seconds = float(time.removesuffix(" s")) if time else None
        return cls(fault, requests, effects, twice, at_most, lost, seconds, _FILE.findall(test)[0])


class Proof:
    """Takes the figures of one test, and fails those that break a promise.

    :param promise: the promise.
    :param fault: the fault.
    :param test: the test's file, as ``tests/folder/test_file.py``.
    """

    def __init__(self, promise: str, fault: str, test: str) -> None:
        self._promise, self._fault, self._test = promise, fault, test
        self.given = False
        """Whether the test has handed in its figures."""

    def __call__(
        self,
        *,
        requests: int | None = None,
        effects: int | None = None,
        twice: int | None = None,
        at_most: int | None = None,
        lost: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Check the figures and keep them; :class:`Row` says what they are."""
        self.given = True
        row = Row(self._fault, requests, effects, twice, at_most, lost, seconds, self._test)
        print(" | ".join(f"{name}: {cell}" for name, cell in zip(HEAD, row.cells(), strict=True) if cell))
        assert (twice is None) == (at_most is None), "what was sent twice needs a bound, and a bound needs a count"
        assert not lost
        assert (twice or 0) <= (at_most or 0)
        documented = shown().get(self._promise, {}).get(self._fault)
        assert documented is None or documented.at_most == at_most, "the page has another bound: run `make guarantees`"
        if not _NEWEST:
            return
        FIGURES.mkdir(exist_ok=True)
        name = re.sub(r"\W+", "-", f"{self._promise} {self._fault}") + ".json"
        (FIGURES / name).write_text(json.dumps({"promise": self._promise, **asdict(row)}, indent=1) + "\n")


def proofs() -> dict[str, dict[str, str]]:
    """Return the file that proves every fault of every promise, as the tests themselves say.

    :raises AssertionError: for two tests of one fault, and for a promise or fault that is no literal.
    """
    found: dict[str, dict[str, str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        test = str(file.relative_to(ROOT))
        for promise, fault in _marks(ast.parse(file.read_text()), test):
            faults = found.setdefault(promise, {})
            assert fault not in faults, f"{test} and {faults[fault]} prove the same: {fault}"
            faults[fault] = test
    return found


def _marks(tree: ast.Module, test: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == guarantee.__name__:
            literals = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            assert len(literals) == 2, f"{test}:{node.lineno}: guarantee() needs two literals"
            yield str(literals[0]), str(literals[1])


def shown() -> dict[str, dict[str, Row]]:
    """Return the rows of every table of the pages, by promise and fault."""
    tables = [table for page in PAGES for table in _TABLE.finditer(page.read_text())]
    promises = [table["promise"] for table in tables]
    assert len(set(promises)) == len(promises), f"a table is on two pages, or twice on one: {promises}"
    return {table["promise"]: {row.fault: row for row in _rows(table["rows"])} for table in tables}


def _rows(table: str) -> Iterator[Row]:
    for line in table.splitlines()[2:]:
        yield Row.of(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))


def write() -> None:
    """Write every table anew: a row for each test, with its last figures, or with those that the pages already show.

    :raises SystemExit: for rows that have no figures yet, whose tables stay as they are, and for a promise without a table.
    """
    files = [json.loads(file.read_text()) for file in sorted(FIGURES.glob("*.json"))]
    measured = {(figures.pop("promise"), figures["fault"]): Row(**figures) for figures in files}
    old, pages, missing = shown(), {page: page.read_text() for page in PAGES}, []
    for promise, faults in proofs().items():
        if promise not in old:
            raise SystemExit(f"no page has a table for {promise!r}: add '<!-- proven: {promise} -->' and '<!-- end -->' to one")
        rows = {fault: measured.get((promise, fault)) or old[promise].get(fault) for fault in faults}
        if all(rows.values()):
            found = {fault: row for fault, row in rows.items() if row}
            pages = {page: _with_table(text, promise, found) for page, text in pages.items()}
        missing += [f"{fault} ({faults[fault]})" for fault, row in rows.items() if row is None]
    for page, text in pages.items():
        page.write_text(text)
    if missing:
        raise SystemExit("no figures yet; run these tests first:\n" + "\n".join(missing))


def _with_table(page: str, promise: str, rows: Mapping[str, Row]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows.values()]
    table = "\n".join(lines) + "\n"
    return _TABLE.sub(lambda found: f"{found[1]}{table}{found[4]}" if found["promise"] == promise else found[0], page)


if __name__ == "__main__":
    write()
