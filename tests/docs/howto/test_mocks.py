"""The tests that docs/testing.md shows for mocks pass as they are printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.doc_blocks import code_of


def test_the_mocks_of_the_testing_page_pass_from_an_empty_folder(tmp_path: Path) -> None:
    for number, name in enumerate(["testing.md-1", "testing.md-2", "testing.md-3"]):
        (tmp_path / f"test_{number}.py").write_text(code_of(name))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=env | {"AIRFLOW_HOME": str(tmp_path / "home")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-1000:]
