"""Each of the named responses, to every operation through both clients and to a download."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.cases import Case, DownloadCase, summary
from tests.differential.examples import BODY, EXAMPLES
from tests.differential.harness import Harness, harness


@pytest.fixture(scope="module")
def running() -> Iterator[Harness]:
    with harness() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_ends_as_the_failure_table_says_and_does_no_harm(running: Harness, name: str) -> None:
    response = EXAMPLES[name]
    found = running.run(Case("example", (response,), "direct"))
    found += running.run_download(DownloadCase("example", "", BODY, "plain", "", stalls=False, fixed=response))
    assert not found, summary(found, "")
