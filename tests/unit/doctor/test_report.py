from __future__ import annotations

import json
import textwrap

import pytest

from airflow_provider_cloudstore.doctor.report import CHECKS, Report, Verdict
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings

HOSTILE = "\x1b[2J\x1b]0;title\x07\r\nForged: row\u202e\x9b31m" + "w" * 300


@pytest.fixture
def report() -> Report:
    return Report("files")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_report_fits_into_the_width_of_a_line(report: Report, width: int) -> None:
    report.add("upload", "a sentence of several words " * 20, Verdict.CONTRADICTS, "what to do about it " * 20)
    report.add("file id", HOSTILE, Verdict.CONTRADICTS, HOSTILE)
    assert max(map(len, report.text(width).splitlines())) <= width


def test_the_table_has_a_row_for_each_check_in_order_and_loses_no_word(report: Report) -> None:
    report.add("upload", "HTTP 200; it has the keys one, two, three, four, five, six", Verdict.AS_ASSUMED)
    table = report.text(80).split("\n\n")[0]
    first = [name for line in table.splitlines()[2:] if (name := line[:14].strip())]
    assert first == [check.name for check in CHECKS]
    seen = [line[34:61].strip() for line in table.splitlines()]
    assert "HTTP 200; it has the keys one, two, three, four, five, six" in " ".join(seen)


def test_no_text_of_the_service_can_control_the_terminal_or_forge_a_line(report: Report) -> None:
    report.add("upload", HOSTILE, Verdict.CONTRADICTS, HOSTILE)
    report.propose("file_id_path", HOSTILE)
    assert report.text().replace("\n", "").isprintable()
    assert not any(line.startswith("Forged") for line in report.text().splitlines())
    assert report.to_dict()["checks"][8]["seen"].isprintable()


def test_the_extras_can_be_pasted_as_they_are(report: Report) -> None:
    report.extras = {"timeout": 60, "download_url": "https://h/d?download_token={token}"}
    report.kept = ["proxy"]
    report.propose("not_found_pattern", "no such \u201efile\u201d \\(.*\\)")
    report.propose("file_id_path", "data.0.\u540d\u524d_id")
    line = next(line for line in report.text(80).splitlines() if line.startswith("{"))
    assert json.loads(line) == report.extras == report.to_dict()["extras"]
    Settings.from_connection(host="h", schema=None, port=None, password="x", extra=json.loads(line))
    assert "Keep 'proxy'" in report.text(80)


def test_without_a_proposal_there_is_nothing_to_paste(report: Report) -> None:
    report.extras = {"timeout": 60}
    assert "{" not in report.text()


def test_what_stops_tasks_makes_the_connection_unusable(report: Report) -> None:
    assert report.to_dict()["usable"]
    report.add("ranges", "none", Verdict.CONTRADICTS, stops_tasks=False)
    assert report.to_dict()["usable"]
    assert "Tasks can rely on connection 'files', as far as tried." in report.text()
    report.add("file id", "at id", Verdict.NEEDS_SETTING)
    assert not report.to_dict()["usable"]
    assert "Tasks cannot yet rely on connection 'files'" in report.text()
    report.add("file id", "'f1'", Verdict.AS_ASSUMED)
    assert report.usable, "a later finding replaces the first"


def test_as_plain_data_it_has_every_check_and_survives_json(report: Report) -> None:
    report.add("token", "HTTP 401", Verdict.CONTRADICTS, "Set the password.")
    report.propose("token_path", "link.key")
    data = json.loads(json.dumps(report.to_dict()))
    assert data["connection"] == "files"
    assert data["usable"] is False
    assert [row["check"] for row in data["checks"]] == [check.name for check in CHECKS]
    assert data["checks"][4] == {
        "check": "token",
        "assumed": "the service accepts it",
        "seen": "HTTP 401",
        "verdict": "contradicts",
        "meaning": "Set the password.",
        "stops_tasks": True,
    }
    assert data["proposed"] == {"token_path": "link.key"}


def test_what_was_not_tried_names_its_flag(report: Report) -> None:
    rows = {row["check"]: row for row in report.to_dict()["checks"]}
    assert rows["rate limit"]["verdict"] == "not tried"
    assert rows["rate limit"]["meaning"] == "use --requests N"
    ending = " ".join(report.text(80).rpartition("\n\n")[2].split())
    assert ending.endswith("deleting folders (--delete-folder ID), rate limits (--requests N).")


def test_a_secret_that_is_known_later_shows_nowhere(report: Report) -> None:
    secret = "c4n4ry-t0k3n/value"
    report.add("upload", f"it has the keys {secret}", Verdict.CONTRADICTS, "hex: " + secret.encode().hex())
    report.propose("file_id_path", f"{secret}_id")
    report.secrets.append(Secret(secret))
    printed = report.text() + json.dumps(report.to_dict()) + report["upload"].seen
    assert "c4n4ry" not in printed
    assert secret.encode().hex() not in printed
    assert "it has the keys ***" in report["upload"].seen


def test_long_lines_are_wrapped_between_words(report: Report) -> None:
    meaning = "Set extra 'file_id_path' to 'data.file.id', and run it again with a file that is larger than that one."
    report.add("file id", "x", Verdict.NEEDS_SETTING, meaning)
    wrapped = textwrap.fill(f"file id: {meaning}", 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    assert wrapped in report.text(80)
