from __future__ import annotations

from airflow_provider_cloudstore.doctor.leaves import leaves_of
from airflow_provider_cloudstore.doctor.report import WIDTH, Report, Step


def test_the_first_line_is_the_verdict_and_what_matters_most_comes_first() -> None:
    extras = {"token_path": "a"}
    unrecognized = Report("c", extras=extras, problems=["uploads fail"], unrecognized=True)
    assert str(unrecognized).startswith("This service's errors are not recognized")
    failing = Report("c", extras=extras, problems=["uploads fail"])
    assert str(failing).splitlines()[0] == "Tasks cannot rely on connection 'c', because uploads fail."
    unset = Report("c", extras=extras)
    assert str(unset).splitlines()[2:4] == ['Put this under "extra" of the connection:', '{"token_path": "a"}']
    fine = Report("c")
    assert str(fine).splitlines()[0] == "Tasks can rely on connection 'c', as far as tried."
    assert [one.usable for one in (unrecognized, failing, unset, fine)] == [False, False, False, True]


def test_a_response_is_shown_with_the_path_of_every_leaf_and_cut_at_twenty_lines_of_eighty_columns() -> None:
    leaves = [(path, "x" * 200) for path, _ in leaves_of({"a": [{"b": n} for n in range(30)]})]
    text = str(Report("c", steps=[Step("upload", "POST /x", "HTTP 200, " + "word " * 40 + "x" * 200, leaves)]))
    assert "    a.0.b: xxx" in text
    assert "    ... and 10 more" in text
    assert max(map(len, text.splitlines())) == WIDTH


def test_a_value_without_a_path_is_the_body() -> None:
    assert list(leaves_of("OK")) == [("(body)", "OK")]
    assert list(leaves_of({})) == []


def test_what_was_not_tried_is_one_line_with_the_flags() -> None:
    report = Report("c", steps=[Step("upload", "POST /x", "HTTP 200")])
    assert str(report).splitlines()[-1] == "Not tried: --wrong-token, --delete-folder ID."
    assert report.to_dict()["not_tried"] == ["--wrong-token", "--delete-folder ID"]
