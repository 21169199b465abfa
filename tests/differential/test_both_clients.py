"""Whatever a service answers: both clients end as the failure table says, show no secret, and stay within time and memory.

Slow: ``make test-differential`` plays 2,000 cases, ``make test-differential CASES=10000`` more of them. The cases depend on
``CLOUDSTORE_SEED`` alone; ``CLOUDSTORE_CASE`` plays one of them again.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.differential.harness import GROWTH_LIMIT, Case, Mismatch, harness, memory

_SHOWN = 8
_WARM_UP = 300  # cases after which a process has its memory


@pytest.mark.slow
def test_any_response_ends_as_the_failure_table_says_with_both_clients() -> None:
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
            if number == _WARM_UP:
                held = memory()
        grown = memory() - held if held else 0
    print(f"{time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU, {grown / 2**20:.1f} MiB more")
    assert not found, _summary(found, seed)
    assert grown <= GROWTH_LIMIT


def _summary(found: list[Mismatch], seed: str) -> str:
    kinds = Counter(f"{one.client} {one.operation}: {one.kind}" for one in found)
    first_of_kind: dict[str, Mismatch] = {}
    for one in found:
        first_of_kind.setdefault(one.kind, one)
    lines = [f"{len(found)} mismatches in {len({one.case.number for one in found})} cases (CLOUDSTORE_SEED={seed})"]
    lines += [f"  {count:6} {kind}" for kind, count in kinds.most_common(40)]
    lines += [one.report(seed) for one in list(first_of_kind.values())[:_SHOWN]]
    return "\n".join(lines)
