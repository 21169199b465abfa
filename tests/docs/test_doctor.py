"""The doctor's commands, flags and reports in the docs are the real ones."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from airflow_provider_cloudstore.doctor import diagnose
from airflow_provider_cloudstore.doctor.command import main
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import PAGES, ROOT, blocks, code_of
from tests.unit.doctor.services import OWN, OWN_EXTRAS, connected_to, redirected

PAGE = ROOT / "docs" / "operate" / "check-your-service.md"
GUIDE = ROOT / "docs" / "guides" / "connect-a-service.md"
COMMANDS = [
    (page, tuple(shlex.split(line)))
    for page in PAGES
    for block in blocks(page, "console")
    for line in block.code.splitlines()
    if line.startswith("airflow cloudstore doctor")
]
SAMPLE = "https://example.com/small.csv"


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page.name}-{len(words)}" for page, words in COMMANDS])
def test_a_command_of_the_docs_finds_the_emulator_usable(page: Path, command: tuple[str, ...], emulator: Emulator) -> None:
    source = emulator.serve(b"name\n")
    with redirected(), pytest.raises(SystemExit, match="0"):
        main([source if word == SAMPLE else word for word in command[3:]])


def test_the_function_of_the_page_returns_a_report(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(code_of("check-your-service.md-0").replace(SAMPLE, emulator.serve(b"name\n")), names)
    assert "Tasks can rely on connection 'cloudstore_default', as far as tried." in capsys.readouterr().out


def test_the_page_shows_what_the_doctor_prints_of_the_emulator(emulator: Emulator) -> None:
    (shown,) = blocks(PAGE, "text")
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.sub(date, "", shown.code).strip() == re.sub(date, "", str(diagnose()))


def test_the_guide_shows_what_the_doctor_prints_before_and_after_its_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = blocks(GUIDE, "text")
    (extras,) = blocks(GUIDE, "json")
    assert json.loads(extras.code) == OWN_EXTRAS
    with connected_to(OWN, monkeypatch):
        assert before.code.strip() == str(diagnose(wrong_token=True, upload=SAMPLE))
    with connected_to(OWN, monkeypatch, **OWN_EXTRAS):
        assert after.code.strip() == str(diagnose(wrong_token=True, upload=SAMPLE))
