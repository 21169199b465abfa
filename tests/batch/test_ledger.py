from __future__ import annotations

import json
import random

import pytest
from airflow_provider_cloudstore.batch.progress import Progress, Status, digest_of


def test_the_watermark_is_before_the_first_entry_that_is_not_finished() -> None:
    progress = Progress()
    chains = [digest_of(str(number)) for number in range(5)]
    for number in range(5):
        progress.begin(number, chains[number])
    for number, watermark in ((1, 0), (2, 0), (0, 3), (4, 3), (3, 5)):
        progress.finish(number, digest_of(str(number)).hex(), Status.QUEUED)
        assert progress.watermark == watermark
    assert progress.chain == chains[4]
    assert progress.ahead == {}
    assert progress.finished == 5


def test_any_order_of_finishing_ends_at_the_end_and_survives_storing_at_any_moment() -> None:
    for seed in range(50):
        order, progress, chain = random.Random(seed), Progress(), b""
        chains = [chain := digest_of(str(number), chain) for number in range(60)]
        waiting: list[int] = []
        done = set()
        for number in range(60):
            progress.begin(number, chains[number])
            waiting.append(number)
            while waiting and order.random() < 0.6:
                finished = waiting.pop(order.randrange(len(waiting)))
                progress.finish(finished, digest_of(str(finished)).hex(), Status.QUEUED)
                done.add(finished)
            again = Progress.from_state(json.loads(json.dumps(progress.to_state())))
            assert again is not None
            assert set(range(again.watermark)) | again.ahead.keys() == done
            assert again.chain == (chains[again.watermark - 1] if again.watermark else b"")
            assert again.counts == progress.counts
            urls = [str(position) for position in range(60)]
            assert again.fits(urls)
            assert again.fits([*urls, "grown"])
            for position in done:
                assert not again.fits([*urls[:position], "another", *urls[position + 1 :]])
                assert not again.fits(urls[:position])


def test_the_state_is_small_whatever_is_ahead() -> None:
    progress = Progress()
    for number in range(2048):
        progress.begin(number, b"x")
        if number % 2:
            progress.finish(number, digest_of(str(number)).hex(), Status.FAILED, {"error": "e" * 400, "url": "u" * 200})
    assert len(progress.failures) == 20
    assert len(json.dumps(progress.to_state())) < 60_000


@pytest.mark.parametrize("state", [None, 5, {}, {"version": 0}, "x"])
def test_a_state_of_another_version_is_not_used(state: object) -> None:
    assert Progress.from_state(state) is None


def test_a_digest_depends_on_all_that_came_before() -> None:
    assert digest_of("b", digest_of("a")) != digest_of("b", digest_of("x"))
    assert len(digest_of("\ud800")) == 16
