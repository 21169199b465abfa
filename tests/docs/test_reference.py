from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider_cloudstore import exceptions
from scripts import reference


def test_the_pages_are_as_the_code_says() -> None:
    assert reference.main(["--check"]) == 0


def test_a_stale_page_is_named_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(reference.PAGES, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    monkeypatch.setattr(exceptions.ChecksumError, "__doc__", "Another meaning.")
    (tmp_path / "results.md").unlink()
    assert reference.main(["--check"]) == 1
    assert [line.partition(" is stale")[0] for line in capsys.readouterr().out.splitlines()] == [
        "docs/reference/results.md",
        "docs/reference/errors.md",
    ]
    reference.main([])
    assert reference.main(["--check"]) == 0
    assert "Another meaning" in (tmp_path / "errors.md").read_text()
