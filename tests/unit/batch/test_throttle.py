"""When a request may be sent, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.sender import FAILURES_TO_PROBE, BatchEnded, Throttle
from tests.unit.batch.virtual import in_virtual_time, now, settle

DOWN = exceptions.TransientServiceError("HTTP 500", status=500)


def limited(retry_after: float | None = None) -> exceptions.RateLimitError:
    return exceptions.RateLimitError("HTTP 429", status=429, retry_after=retry_after)


def throttle(requests_per_second: float | None = None) -> Throttle:
    lease: Any = SimpleNamespace(is_valid=True)
    return Throttle(lease, requests_per_second)


async def moments(one: Throttle, error: exceptions.CloudStoreError, count: int) -> list[float]:
    """When so many requests are sent, of which each fails."""
    found = []
    for _ in range(count):
        await one.acquire()
        found.append(now())
        one.record_failure(error)
    return found


@in_virtual_time
async def test_after_five_failures_of_the_service_in_a_row_single_probes_are_sent_after_1_2_4_8_16_and_32_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent = await moments(throttle(), DOWN, 11)
    assert sent[:5] == [0.0] * 5
    assert [later - earlier for earlier, later in itertools.pairwise(sent[4:])] == [1, 2, 4, 8, 16, 32]
    assert caplog.messages == ["The service accepts no uploads (HTTP 500): sending single probes."]


@in_virtual_time
async def test_a_service_that_works_in_between_begins_the_count_anew() -> None:
    one = throttle()
    for _ in range(3):
        await moments(one, DOWN, 4)
        await moments(one, exceptions.RequestRejectedError("HTTP 400", status=400), 1)
    assert now() == 0


@in_virtual_time
async def test_one_probe_is_in_flight_at_a_time() -> None:
    one, admitted = throttle(), list[float]()
    await moments(one, DOWN, FAILURES_TO_PROBE)

    async def work() -> None:
        await one.acquire()
        admitted.append(now())

    workers = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(30)
    assert admitted == [1]
    one.record_failure(DOWN)
    await asyncio.sleep(30)
    assert admitted == [1, 32]
    one.record_success()
    await settle()
    assert len(admitted) == 3
    await asyncio.gather(*workers)


@in_virtual_time
async def test_what_was_sent_before_a_pause_does_not_prolong_it() -> None:
    one = throttle()
    for _ in range(FAILURES_TO_PROBE + 20):
        await one.acquire()
    for _ in range(FAILURES_TO_PROBE + 20):
        one.record_failure(DOWN)
    assert await moments(one, DOWN, 2) == [1, 3]


@pytest.mark.parametrize(("asked", "pause"), [(7.5, 7.5), (None, 1)])
@in_virtual_time
async def test_a_pause_that_the_service_asks_for_is_kept_and_takes_at_least_a_second(asked: float | None, pause: float) -> None:
    assert await moments(throttle(), limited(asked), 3) == [0, pause, 2 * pause]


@pytest.mark.parametrize(("error", "cause"), [(DOWN, "service"), (limited(), "rate_limit")])
@in_virtual_time
async def test_a_minute_without_a_success_ends_the_batch_counted_from_the_first_failure(
    error: exceptions.CloudStoreError, cause: str
) -> None:
    one = throttle()
    await one.acquire()
    one.record_success()
    await asyncio.sleep(1000)
    with pytest.raises(BatchEnded):
        await moments(one, error, 1_000)
    assert 1060 <= now() <= 1070
    assert isinstance(one.error, exceptions.BatchInterruptedError)
    assert f"its last response: {error.reason}" in one.error.reason
    assert (one.error.cause, one.error.status, one.error.permanent) == (cause, error.status, False)


@pytest.mark.parametrize("away", [899.0, 901.0, 1e4])
@in_virtual_time
async def test_a_failure_after_a_pause_of_any_length_ends_nothing(away: float) -> None:
    one = throttle()
    for _ in range(2):
        await asyncio.sleep(away)
        await moments(one, DOWN, FAILURES_TO_PROBE + 1)
        await one.acquire()
        one.record_success()
    assert one.error is None


@in_virtual_time
async def test_two_failures_with_no_request_between_are_no_outage_however_far_apart() -> None:
    one = throttle()
    for _ in range(2):
        await moments(one, DOWN, 1)
        await asyncio.sleep(1000)
    assert one.error is None


@pytest.mark.parametrize(("asked", "ends"), [(300.0, False), (301.0, True)])
@in_virtual_time
async def test_a_service_that_asks_for_more_than_five_minutes_ends_the_batch(asked: float, ends: bool) -> None:
    one = throttle()
    await one.acquire()
    one.record_failure(limited(asked))
    assert (one.error is not None) is ends


@in_virtual_time
async def test_a_rate_is_kept_and_what_was_not_used_is_not_made_up_for() -> None:
    one, sent = throttle(4), list[float]()

    async def work() -> None:
        await one.acquire()
        sent.append(now())

    await asyncio.gather(*(work() for _ in range(9)))
    assert sent == pytest.approx([number * 0.25 for number in range(9)], abs=0.011)
    await asyncio.sleep(10)
    await asyncio.gather(*(work() for _ in range(3)))
    assert sent[9:] == pytest.approx([12, 12.25, 12.5], abs=0.011)
