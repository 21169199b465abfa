from __future__ import annotations

import json
import random

import pytest

from airflow_provider_cloudstore.batch.outcomes import Status, digest_of
from airflow_provider_cloudstore.batch.state import Positions, State
from airflow_provider_cloudstore.batch.tries import STATE_KEY, Try
from airflow_provider_cloudstore.protocol import errors
from tests.unit.batch.conftest import MemoryState


def settled(positions: dict[int, str]) -> Positions:
    found = Positions()
    for position, url in positions.items():
        found.add(position, digest_of(url))
    return found


def test_positions_are_found_again_with_their_outcome() -> None:
    for seed in range(20):
        dice, positions, wanted = random.Random(seed), Positions(), dict[int, Status]()
        for _ in range(400):
            position, is_unknown = dice.randrange(300), dice.random() < 0.2
            positions.add(position, digest_of(str(position)))
            positions.set_unknown(position, is_unknown)
            wanted[position] = Status.UNKNOWN if is_unknown else Status.QUEUED
        again = Positions.from_dict(json.loads(json.dumps(positions.to_dict())))
        for found in (positions, positions.copy(), again):
            assert {at: found.status(at) for at in range(310)} == {at: wanted.get(at) for at in range(310)}
        assert again.matches(positions)


def test_a_digest_tells_of_any_order_but_not_of_moved_changed_missing_or_added_lines() -> None:
    kept = settled({0: "a", 1: "b", 9: "c"})
    assert kept.matches(settled({9: "c", 0: "a", 1: "b"}))
    twice = settled({0: "a", 1: "b", 9: "c"})
    twice.add(9, digest_of("c"))
    assert kept.matches(twice)
    for other in ({0: "b", 1: "a", 9: "c"}, {0: "a", 1: "b"}, {0: "a", 1: "b", 8: "c"}, {0: "a", 1: "b", 9: "d"}, {}):
        assert not kept.matches(settled(other))
    assert not kept.matches(settled({0: "a", 1: "b", 9: "c", 10: "d"}))


def test_ten_million_settled_positions_are_small() -> None:
    bits = b"\xff" * 1_250_000
    assert len(json.dumps(Positions(bits, b"", 5).to_dict())) < 3_000


def test_a_state_without_room_for_more_is_stored_and_says_so() -> None:
    store, writer = MemoryState(), Try(("t",))
    state = State(store, writer)
    for size, is_full in ((10, False), (40_000, True)):
        state.save(Positions(random.Random(1).randbytes(size)))
        assert (state.is_full, len(store.writes)) == (is_full, 1 + is_full)


def test_with_receipts_the_store_holds_only_the_mark_and_the_time() -> None:
    store, writer = MemoryState(), Try(("t",), 3)
    state = State(store, writer)
    assert not state.is_full
    assert state.claim() is None
    assert not state.is_in_receipts
    state.save(None)
    assert store.get(STATE_KEY).keys() == {"receipts", "at", "writer"}
    again = State(store, Try(("t",), 4))
    assert again.claim() is None
    assert again.is_in_receipts


def test_a_claim_stops_older_tries_and_keeps_what_they_stored() -> None:
    store = MemoryState()
    old, new = State(store, Try(("t",), 1)), State(store, Try(("t",), 2))
    old.claim()
    old.save(settled({3: "a"}))
    found = new.claim()
    assert found
    assert found.matches(settled({3: "a"}))
    with pytest.raises(errors.BatchInterruptedError, match="has taken over") as stopped:
        old.save(settled({3: "a", 4: "b"}))
    assert stopped.value.cause == "superseded"
    with pytest.raises(errors.BatchInterruptedError):
        State(store, Try(("t",), 1)).claim()
