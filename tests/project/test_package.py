"""What is released agrees with its changelog and its tag."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cloudstore import __version__
from scripts.package import disagreement, exported, run

ROOT = Path(__file__).resolve().parent.parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"


@pytest.mark.parametrize(
    ("changelog", "tag", "problem"),
    [
        ("# Changelog\n\n## 0.2.0 (2027-01-01)\n\n## 0.1.0 (2026-11-23)\n", "v0.2.0", ""),
        ("## 0.2.0\n", "", ""),
        ("## 0.2.0\n", "0.2.0", "must be v0.2.0"),
        ("## 0.2.0\n", "v0.2.1", "must be v0.2.0"),
        ("## 0.1.0\n", "", "newest entry of CHANGELOG.md is 0.1.0"),
        ("## Unreleased\n\n## 0.2.0\n", "", "newest entry of CHANGELOG.md is Unreleased"),
        ("# Changelog\n", "", "is missing"),
    ],
)
def test_a_release_needs_its_changelog_and_its_tag(changelog: str, tag: str, problem: str) -> None:
    assert problem in disagreement("0.2.0", changelog, tag)
    assert bool(problem) == bool(disagreement("0.2.0", changelog, tag))


def test_this_version_can_be_tagged() -> None:
    assert disagreement(__version__, CHANGELOG.read_text(), f"v{__version__}") == ""


def test_only_files_of_the_commit_are_built(tmp_path: Path) -> None:
    hidden = ROOT / "dags_examples" / "__pycache__" / "hidden.secret"
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("not in the commit")
    try:
        names = {str(file.relative_to(tmp_path / "0")) for file in exported(tmp_path / "0").rglob("*") if file.is_file()}
    finally:
        hidden.unlink()
    assert names == set(run("git", "ls-tree", "-r", "--name-only", "HEAD").splitlines())
