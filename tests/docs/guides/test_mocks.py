"""The tests with mocks that docs/guides/test-your-dag.md shows pass as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_blocks import code_of


class Passed:
    """A plugin that counts the tests that passed."""

    count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call" and report.passed


def test_the_mocks_of_the_page_pass_from_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "test_with_mocks.py").write_text(code_of("test-your-dag.md-3"))
    passed = Passed()  # in this process, which has imported Airflow already
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)], [passed])
    assert (status, passed.count) == (pytest.ExitCode.OK, 2)
