from __future__ import annotations

import random
import tracemalloc

from airflow_provider_cloudstore.batch.keys import KEY_SIZE, KeySet
from airflow_provider_cloudstore.batch.ledger import Ledger, RecordedOutcomes, Status, Survey, digest_of, with_digests
from airflow_provider_cloudstore.batch.manifest import entries_of_list


def test_it_is_a_set() -> None:
    for seed in range(20):
        moves, keys, wanted = random.Random(seed), KeySet(), set()
        known = [digest_of(str(number))[:KEY_SIZE] for number in range(400)]
        known += [bytes([7]) + key[1:] for key in known[:200]]  # most of them in one table
        known += [key[:8] + bytes([number]) * 4 for number, key in enumerate(known[:200])]  # that begin at the same place
        for _ in range(3000):
            key = moves.choice(known)
            if moves.random() < 0.7:
                keys.add(key)
                wanted.add(key)
            else:
                keys.discard(key)
                wanted.discard(key)
        assert {key for key in known if key in keys} == wanted


def test_a_resumed_batch_needs_at_most_eighty_bytes_a_url() -> None:
    count = 8_000
    tracemalloc.start()
    recorded = RecordedOutcomes()
    for number in range(count):
        recorded.add({"digest": digest_of(f"https://h/{number}").hex(), "status": "queued"})
    ledger = Ledger(Survey(count), None, recorded)
    urls = (f"https://h/{number}" for number in range(count))
    assert not any(ledger.admit(entry, digest) for entry, digest in with_digests(entries_of_list(urls)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ledger.earlier[Status.QUEUED] == count
    assert peak < 80 * count
