from __future__ import annotations

import hashlib
import random
import tracemalloc

from airflow_provider_cloudstore.batch.outcomes import KEY_SIZE, KeyTable, digest_of


def test_a_key_table_is_a_dict_of_small_numbers() -> None:
    for seed in range(5):
        dice, table, wanted = random.Random(seed), KeyTable(), dict[bytes, int]()
        keys = [dice.randbytes(KEY_SIZE) for _ in range(3_000)]
        for _ in range(9_000):
            key, number = dice.choice(keys), dice.randrange(1, 256)
            table.set(key, number)
            wanted[key] = number
        assert {key: table.get(key) for key in keys} == {key: wanted.get(key, 0) for key in keys}


def test_keys_that_share_a_slot_and_a_table_are_told_apart() -> None:
    table, keys = KeyTable(), [b"\0" * 8 + bytes([0, 0, 0, number]) for number in range(40)]
    for number, key in enumerate(keys, 1):
        table.set(key, number)
    assert [table.get(key) for key in keys] == list(range(1, 41))


def test_a_digest_is_the_sha256_of_the_url() -> None:
    assert digest_of("https://h/ü") == hashlib.sha256("https://h/ü".encode()).digest()
    assert digest_of("https://h/\ud800") != digest_of("https://h/?")


def test_a_key_takes_at_most_39_bytes() -> None:
    dice = random.Random(1)
    keys = [dice.randbytes(KEY_SIZE) for _ in range(5_000)]
    tracemalloc.start()
    try:
        table = KeyTable()
        for key in keys:
            table.set(key, 1)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(keys) < 39 + 1
    assert all(table.get(key) for key in keys)
