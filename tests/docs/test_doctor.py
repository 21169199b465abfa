"""The doctor's commands, checks and report in the docs are the real ones."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.doctor.__main__ import main
from airflow_provider_cloudstore.doctor.report import CHECKS
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import PAGES, ROOT, blocks, code_of
from tests.wire.doctor.services import ErrorEnvelopes, Reply, connect, examine, running

PAGE = ROOT / "docs" / "operate" / "check-your-service.md"
ASSUMPTIONS = ROOT / "docs" / "project" / "assumptions.md"
COMMANDS = [
    (page, line)
    for page in PAGES
    for block in blocks(page, "console")
    for line in block.code.splitlines()
    if line.startswith("python -m airflow_provider_cloudstore.doctor")
]
SAMPLE = "https://example.com/small.csv"


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page.name}-{line[44:]}" for page, line in COMMANDS])
def test_a_command_of_the_docs_finds_the_emulator_usable(page: Path, command: str, emulator: Emulator) -> None:
    assert main(shlex.split(command.replace(SAMPLE, emulator.serve(b"name\n")))[3:]) == 0, page


def test_the_function_of_the_page_returns_a_report(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(code_of("check-your-service.md-0").replace(SAMPLE, emulator.serve(b"name\n")), names)
    assert "bytes with the source's SHA-256" in capsys.readouterr().out


def test_the_page_shows_what_the_doctor_prints_of_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, _ = blocks(PAGE, "text")
    with Emulator(fetch_delay=0.2) as emulator:  # so that a link is refused at first
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        upload, folder = emulator.serve(b"name\n"), emulator.make_folder("old-reports")
        report = diagnose(wrong_token=True, upload=upload, delete_folder=folder, requests=20)
    assert _constant(shown.code) == _constant(str(report))


class Differing(ErrorEnvelopes):
    """Reports errors with HTTP 200, and has names of its own."""

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(202, {"result": {"fileId": file_id, "queueId": 41}})

    def granted(self, token: str) -> Reply:
        return Reply(200, {"result": {"ticket": token}, "url": f"{self.url}/get/{token}"})


def test_the_page_shows_what_a_service_needs_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = blocks(PAGE, "text")
    with running(Differing()) as service:
        connect(monkeypatch, service.url)
        report = examine(service, delete_folder=None, requests=0)
    assert shown.code.strip() == str(report).partition("\n\n")[2]


def _constant(report: str) -> Counter[str]:
    """The words of a report but for numbers and ids; cells may wrap elsewhere when these have other lengths."""
    return Counter(re.sub(r"'f[0-9a-f]+'|[\d.,]+|-{3,}", "", report).split())


def test_the_assumptions_name_the_doctors_checks() -> None:
    page = ASSUMPTIONS.read_text().partition("## What is not documented")[2]
    last_cells = [line.rstrip(" |").rpartition("|")[2] for line in page.splitlines() if line.startswith("| ")][1:]
    named = set(re.findall("`([^`]+)`", " ".join(last_cells) + page.rpartition("\n\n")[2]))
    assert named == {check.name for check in CHECKS}


def test_the_page_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    flags = set(re.findall(r"^ +(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--conn-id"}
    assert flags == set(re.findall(r"^\| `(--[a-z-]+)", PAGE.read_text(), re.MULTILINE))
