from __future__ import annotations

from airflow_provider_cloudstore.doctor.checks import leaves_of
from airflow_provider_cloudstore.doctor.report import WIDTH, Report, Step


def test_the_first_line_is_the_verdict_and_what_matters_most_comes_first() -> None:
    extras = {"token_path": "a"}
    unrecognized = Report("c", extras=extras, problems=["uploads fail"], unrecognized=True)
    assert str(unrecognized).startswith("This service's errors are not recognized")
    failing = Report("c", extras=extras, problems=["uploads fail"])
    assert str(failing).splitlines()[0] == "Tasks cannot rely on connection 'c', because uploads fail."
    unset = Report("c", extras=extras)
    assert str(unset).splitlines()[2:4] == ['Add this to "extra" of the connection:', '{"token_path": "a"}']
    assert [one.usable for one in (unrecognized, failing, unset, Report("c"))] == [False, False, False, True]


def test_a_response_is_shown_with_the_path_of_every_leaf_and_cut_at_twenty_lines_of_eighty_columns() -> None:
    leaves = [(path, "x" * 200) for path, _ in leaves_of({"a": [{"b": n} for n in range(30)]})]
    text = str(Report("c", steps=[Step("upload", "POST /x", "HTTP 200, " + "word " * 40 + "x" * 200, leaves)]))
    assert "  a.0.b: xxx" in text
    assert text.count(".b: ") == 20
    assert "  ... and 10 more" in text
    assert max(map(len, text.splitlines())) == WIDTH
