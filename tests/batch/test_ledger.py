from __future__ import annotations

import json
import random

import pytest

from airflow_provider_cloudstore.batch import ledger as ledger_module
from airflow_provider_cloudstore.batch.ledger import (
    Ledger,
    Match,
    Ranges,
    RecordedOutcomes,
    State,
    Status,
    Survey,
    digest_of,
    with_digests,
)
from airflow_provider_cloudstore.batch.manifest import entries_of_list


def surveyed(urls: list[str], earlier: State | None = None) -> tuple[Survey, Match]:
    return Survey.of(with_digests(entries_of_list(urls)), earlier)


def test_ranges_are_a_set_of_positions() -> None:
    for seed in range(30):
        moves, ranges, wanted = random.Random(seed), Ranges(), set()
        for _ in range(300):
            position = moves.randrange(80)
            if moves.random() < 0.7:
                ranges.add(position)
                wanted.add(position)
            else:
                ranges.discard(position)
                wanted.discard(position)
            assert {n for start, end in ranges for n in range(start, end)} == wanted
            assert len(ranges) == len(wanted)
        assert list(Ranges.decode(ranges.encode())) == list(ranges)
        kept = [(3, 17), (17, 30), (55, 70)]
        within = {n for start, end in kept for n in range(start, end)} & wanted
        assert {n for n in range(90) if n in ranges.within(kept)} == within


@pytest.mark.parametrize("count", [1, 7, 200, 1000, 5003])
def test_a_change_of_one_line_costs_a_hundredth_of_what_stands_before_it(count: int) -> None:
    urls = [f"https://h/{number}" for number in range(count)]
    state = State(surveyed(urls)[0])
    assert sum(end - start for start, end in surveyed(urls, state)[1].unchanged) == count
    grown = surveyed([*urls, "https://h/new"], state)[1].unchanged
    assert sum(end - start for start, end in grown) == count
    for changed in {0, count // 3, count // 2, count - 1}:
        other = [*urls[:changed], "https://h/other", *urls[changed + 1 :]]
        same = surveyed(other, state)[1].unchanged
        lost = set(range(count)) - {n for start, end in same for n in range(start, end)}
        assert changed in lost
        assert len([n for n in lost if n < changed]) <= changed / 100
        removed = surveyed([*urls[:changed], *urls[changed + 1 :]], state)[1].unchanged
        before = {n for start, end in removed for n in range(start, end)}
        assert len(set(range(changed)) - before) <= changed / 100


def test_the_state_is_small_whatever_fails_and_forgets_nothing_that_was_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_MAX_SETTLED_SIZE", 6_000)  # a sixth, for a test that is six times as fast
    urls = [f"https://h/{number}" for number in range(50_000)]
    ledger, moves = Ledger(surveyed(urls)[0]), random.Random(1)
    queued = set()
    for entry, digest in with_digests(entries_of_list(urls)):
        ticket = ledger.admit(entry, digest)
        assert ticket
        status = moves.choice([Status.QUEUED, Status.FAILED, Status.UNKNOWN])
        if status is Status.QUEUED:
            queued.add(ticket.index)
        ledger.record(ticket, status, url="u" * 300, error="" if status is Status.QUEUED else "é" * 900)
    stored = json.dumps(ledger.to_state() | {"checksum": "c" * 64, "writer": {"scope": ["d" * 250] * 4}})
    assert len(stored) < 65_536
    again = State.from_dict(json.loads(stored))
    assert all(index in again.settled for index in queued)
    assert ledger.forgotten > 0


def test_a_state_of_a_very_long_manifest_is_small() -> None:
    survey = Survey(10**9, b"x" * 6 * 1760)
    assert len(json.dumps(State(survey).to_dict())) < 16_000


def receipt(url: str, status: str, **more: object) -> dict[str, object]:
    return {"digest": digest_of(url).hex(), "status": status, **more}


def test_receipts_tell_of_each_occurrence_once() -> None:
    recorded, key = RecordedOutcomes(), digest_of("a")[:12]
    for status in ("queued", "failed", "queued", "unknown", "skipped"):
        recorded.add(receipt("a", status))
    taken = [recorded.pop(key) for _ in range(4)]
    assert [found and found[0] for found in taken] == [Status.QUEUED, Status.QUEUED, Status.UNKNOWN, None]
    assert [recorded.pop_skipped(key) for _ in range(2)] == [True, False]
    recorded.add(receipt("b", "unknown"))
    recorded.add(receipt("b", "queued", before="unknown"))
    assert [recorded.pop(digest_of("b")[:12]), recorded.pop(digest_of("b")[:12])] == [(Status.QUEUED, {}), None]


@pytest.mark.parametrize("recorded", [["b", "a"], ["b", "a", "a"], []], ids=str)
def test_the_first_occurrence_that_failed_is_sent_although_a_later_one_was_queued(recorded: list[str]) -> None:
    survey, match = surveyed(["https://h/a", "https://h/b", "https://h/a"])
    state, receipts = State(survey, Ranges([(1, 3)])), RecordedOutcomes()
    for name in recorded:
        receipts.add(receipt(f"https://h/{name}", "queued"))
    urls = ["https://h/a", "https://h/b", "https://h/a", "https://h/a"]
    survey, match = surveyed(urls, state)
    ledger = Ledger(survey, state, receipts, unchanged=match.unchanged, skip_duplicates=False)
    sent = [ledger.admit(entry, digest) is not None for entry, digest in with_digests(entries_of_list(urls))]
    assert sent == [True, False, False, recorded.count("a") < 2]


def test_what_the_service_says_is_bounded_in_a_receipt() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for response in ("x" * 100_000, deep, {"a": float("nan")}, {"\ud800": "\udc00"}, {1: object()}):
        ledger = Ledger(Survey(1), writes_receipts=True)
        ticket = ledger.admit(*next(iter(with_digests(entries_of_list(["https://h/1"])))))
        assert ticket
        ledger.record(ticket, Status.QUEUED, url="https://h/1", response=response)
        (line,) = ledger.drain_receipts()
        assert len(line) < 20_000
        assert json.loads(line.encode("utf-8", "backslashreplace"))["status"] == "queued"


def test_duplicates_wait_for_their_first_occurrence() -> None:
    urls = ["a", "a", "b", "a"]
    for outcome, sent in ((Status.QUEUED, 0), (Status.UNKNOWN, 0), (Status.FAILED, 1)):
        ledger = Ledger(surveyed(urls)[0])
        tickets = [ledger.admit(entry, digest) for entry, digest in with_digests(entries_of_list(urls))]
        first, other = (ticket for ticket in tickets if ticket)
        assert (first.index, other.index) == (0, 2)
        ledger.record(first, outcome, error="" if outcome is Status.QUEUED else "e")
        assert len(ledger.retries) == sent
        assert ledger.now[Status.SKIPPED] == (0 if sent else 2)
