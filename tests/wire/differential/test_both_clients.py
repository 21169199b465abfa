"""Whatever is sent back: both clients end as the failure table says, no truncated response is success, no upload is resent, no
secret shows, and every request ends in time.

Slow: ``make test-differential`` plays 2,000 cases, ``make test-differential CASES=10000`` more of them. The cases depend on
``CLOUDSTORE_SEED`` alone; ``CLOUDSTORE_CASE`` plays one of them again.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.wire.differential.harness import Harness, Mismatch
from tests.wire.differential.responses import Case, DownloadCase

pytestmark = pytest.mark.slow


def test_any_response_ends_as_the_failure_table_says_and_does_no_harm() -> None:
    seed = os.environ.get("CLOUDSTORE_SEED") or "1"
    one = os.environ.get("CLOUDSTORE_CASE")
    numbers = [int(one)] if one else range(int(os.environ.get("CLOUDSTORE_CASES") or 2000))
    print(f"\nCLOUDSTORE_SEED={seed}, {len(numbers)} cases")
    found: list[Mismatch] = []
    with ExitStack() as stack:
        running = Harness(stack)
        for number in numbers:
            found += running.run(Case.generate(seed, number))
            found += running.run_download(DownloadCase.generate(seed, number))
    assert not found, f"CLOUDSTORE_SEED={seed}: {_summary(found)}"


def _summary(found: list[Mismatch]) -> str:
    """How often each kind of mismatch was found, and the first of each; ``CLOUDSTORE_CASE`` plays its number again."""
    kinds = Counter(f"{one.who}: {one.kind}" for one in found)
    lines = [f"{len(found)} mismatches in {len({one.case.number for one in found})} cases"]
    lines += [f"  {count:6} {kind}" for kind, count in kinds.most_common(40)]
    for kind in dict.fromkeys(one.kind for one in found):
        first = next(one for one in found if one.kind == kind)
        lines.append(f"case {first.case.number}, {first.who}: {kind}: {first.what}")
        lines += [f"    response {number}: {one.shown()}" for number, one in enumerate(first.case.responses, 1)]
    return "\n".join(lines)
