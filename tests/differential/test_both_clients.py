"""Whatever is sent back: both clients end as the failure table says, no truncated response is success, no upload is resent, no
secret shows, and everything stays within time and memory.

Slow: ``make test-differential`` plays 2,000 cases, ``make test-differential CASES=10000`` more of them. The cases depend on
``CLOUDSTORE_SEED`` alone; ``CLOUDSTORE_CASE`` plays one of them again.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.differential.cases import Case, DownloadCase, Mismatch, summary
from tests.differential.examples import BODY, EXAMPLES
from tests.differential.harness import harness, memory
from tests.differential.invariants import MEMORY_LIMIT

pytestmark = pytest.mark.slow
_WARM_UP = 300  # cases after which a process has its memory


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_ends_as_the_failure_table_says_and_does_no_harm(name: str) -> None:
    response = EXAMPLES[name]
    with harness() as running:
        found = running.run(Case("example", (response,), "direct"))
        found += running.run_download(DownloadCase("example", "", BODY, "plain", "", stalls=False, fixed=response))
    assert not found, summary(found)


def test_any_response_ends_as_the_failure_table_says_and_does_no_harm() -> None:
    seed = os.environ.get("CLOUDSTORE_SEED") or "1"
    one = os.environ.get("CLOUDSTORE_CASE")
    numbers = [int(one)] if one else range(int(os.environ.get("CLOUDSTORE_CASES") or 2000))
    print(f"\nCLOUDSTORE_SEED={seed}, {len(numbers)} cases")
    found: list[Mismatch] = []
    held = 0
    started, cpu = time.monotonic(), time.process_time()
    with harness() as running:
        for number in numbers:
            found += running.run(Case.generate(seed, number))
            found += running.run_download(DownloadCase.generate(seed, number))
            if number == _WARM_UP:
                held = memory()
        grown = memory() - held if held else 0
    print(f"{time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU, {grown / 2**20:.1f} MiB more")
    assert not found, f"CLOUDSTORE_SEED={seed}: {summary(found)}"
    assert grown <= MEMORY_LIMIT
