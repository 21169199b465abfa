"""The tests that docs/guides/test-with-mocks.md shows pass as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_blocks import code_of


class Passed:
    """A plugin that counts the tests that passed."""

    count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call" and report.passed


def test_the_mocks_of_the_testing_page_pass_from_an_empty_folder(tmp_path: Path) -> None:
    for number, name in enumerate(["test-with-mocks.md-0", "test-with-mocks.md-1", "test-with-mocks.md-2"]):
        (tmp_path / f"test_{number}.py").write_text(code_of(name))
    passed = Passed()  # in this process, which has imported Airflow already
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)], [passed])
    assert (status, passed.count) == (pytest.ExitCode.OK, 4)
