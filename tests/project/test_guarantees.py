"""docs/operate/guarantees-*.md show what the tests prove, no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import guarantees
from tests.guarantees import Proof, Row

OTHER = "Another page.\n"
ROW = Row("the node is lost", 4_012, 4_012, 12, 308, 0, 11.4, "tests/cluster/distributed/test_cluster.py")


def test_every_proof_has_its_row_and_every_row_its_proof() -> None:
    shown = {(promise, fault): row.test for promise, rows in guarantees.shown().items() for fault, row in rows.items()}
    assert shown == {(promise, fault): test for promise, faults in guarantees.proofs().items() for fault, test in faults.items()}


def test_no_row_breaks_its_promise() -> None:
    for rows in guarantees.shown().values():
        for row in rows.values():
            assert not row.lost
            assert (row.twice or 0) <= (row.at_most or 0)


def test_a_row_is_read_as_it_was_written() -> None:
    assert Row.of(ROW.cells()) == Row(*[*ROW.cells()[:1], 4_012, 4_012, 12, 308, 0, 11.0, ROW.test])  # type: ignore[arg-type]
    empty = Row("a", None, None, None, None, None, None, "tests/x/test_y.py")
    assert Row.of(empty.cells()) == empty
    assert empty.cells()[-1] == "[test_y.py](../../tests/x/test_y.py)"


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proof:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text(OTHER)
    cells = " | ".join(ROW.cells())
    page.write_text(f"<!-- proven: batch -->\n| head |\n|---|\n| {cells} |\n<!-- end -->\n")
    monkeypatch.setattr(guarantees, "PAGES", (other, page))
    monkeypatch.setattr(guarantees, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(guarantees, "_NEWEST", True)
    return Proof("batch", ROW.fault, ROW.test)


@pytest.mark.parametrize(
    "figures", [{"lost": 1}, {"twice": 309, "at_most": 308}, {"twice": 1}, {"twice": 0, "at_most": 400}], ids=str
)
def test_figures_that_break_a_promise_or_differ_from_the_page_fail(figures: dict[str, int], proof: Proof) -> None:
    with pytest.raises(AssertionError):
        proof(**figures)


def test_the_page_gets_the_figures_of_the_last_run(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "proofs", lambda: {"batch": {ROW.fault: ROW.test}})
    proof(requests=5_000, effects=4_000, twice=0, at_most=308, lost=0, seconds=3.21)
    guarantees.write()
    assert guarantees.PAGES[0].read_text() == OTHER
    assert guarantees.shown() == {"batch": {ROW.fault: Row(ROW.fault, 5_000, 4_000, 0, 308, 0, 3.2, ROW.test)}}


def test_another_airflow_than_the_newest_only_checks_its_figures(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "_NEWEST", False)
    proof(twice=308, at_most=308)
    assert not guarantees.FIGURES.exists()
    with pytest.raises(AssertionError):
        proof(twice=309, at_most=308)


def test_the_page_is_not_written_without_figures(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "proofs", lambda: {"batch": {"another fault": "tests/x.py"}})
    before = [page.read_text() for page in guarantees.PAGES]
    with pytest.raises(SystemExit, match="another fault"):
        guarantees.write()
    assert [page.read_text() for page in guarantees.PAGES] == before


def test_a_table_is_on_one_page(proof: Proof) -> None:
    other, page = guarantees.PAGES
    other.write_text(page.read_text())
    with pytest.raises(AssertionError, match="two pages"):
        guarantees.shown()


def test_writing_without_new_figures_changes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = tuple(tmp_path / page.name for page in guarantees.PAGES)
    for page, copy in zip(guarantees.PAGES, copies, strict=True):
        copy.write_text(page.read_text())
    before = [page.read_text() for page in guarantees.PAGES]
    monkeypatch.setattr(guarantees, "PAGES", copies)
    monkeypatch.setattr(guarantees, "FIGURES", tmp_path / "none")
    guarantees.write()
    assert [copy.read_text() for copy in copies] == before
