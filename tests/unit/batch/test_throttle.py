"""When a request may be sent, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.throttle import FAILURES_TO_PROBE, Drained, Throttle
from tests.unit.batch.virtual import in_virtual_time, now, settle, valid_lease

DOWN = exceptions.TransientServiceError("HTTP 500", status=500)
UNREACHABLE = exceptions.ServiceUnreachableError("connection refused")
REJECTED = exceptions.RequestRejectedError("HTTP 400", status=400)


def limited(retry_after: float | None = None) -> exceptions.RateLimitError:
    return exceptions.RateLimitError("HTTP 429", status=429, retry_after=retry_after)


def throttle(requests_per_second: float | None = None) -> Throttle:
    return Throttle(valid_lease(), requests_per_second)


async def fail(one: Throttle, error: exceptions.CloudStoreError = DOWN, times: int = 1) -> None:
    for _ in range(times):
        await one.acquire()
        one.record_failure(error)


async def succeed(one: Throttle) -> None:
    await one.acquire()
    one.record_success()


async def probing(error: exceptions.CloudStoreError = DOWN) -> Throttle:
    """A throttle whose service has just failed often enough."""
    one = throttle()
    await fail(one, error, FAILURES_TO_PROBE)
    return one


async def moments(one: Throttle, error: exceptions.CloudStoreError, count: int) -> list[float]:
    """When so many requests are sent, of which each fails."""
    found = []
    for _ in range(count):
        await one.acquire()
        found.append(now())
        one.record_failure(error)
    return found


of_a_service_that_works = pytest.mark.parametrize("error", [None, REJECTED], ids=["success", "rejected URL"])


async def respond(one: Throttle, error: exceptions.CloudStoreError | None) -> None:
    """One request, to which the service responds with an error, or with success."""
    await (fail(one, error) if error else succeed(one))


# --- a service that fails


@pytest.mark.parametrize("error", [DOWN, UNREACHABLE, exceptions.BadRequestError("HTTP 405", status=405)], ids=str)
@in_virtual_time
async def test_after_five_failures_of_the_service_in_a_row_single_probes_are_sent_after_1_2_4_up_to_64_seconds(
    error: exceptions.CloudStoreError,
) -> None:
    one = throttle()
    sent = await moments(one, error, 13)
    assert sent[:5] == [0.0] * 5
    assert [later - earlier for earlier, later in itertools.pairwise(sent[4:])] == [1, 2, 4, 8, 16, 32, 64, 64]


@of_a_service_that_works
@in_virtual_time
async def test_a_service_that_works_in_between_begins_the_count_anew(error: exceptions.CloudStoreError | None) -> None:
    one = throttle()
    for _ in range(3):
        await fail(one, times=4)
        await respond(one, error)
    assert now() == 0


@in_virtual_time
async def test_one_probe_is_in_flight_at_a_time() -> None:
    one, admitted = await probing(), list[float]()

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


# --- what the service asks for


@pytest.mark.parametrize(("asked", "pause"), [(7.5, 7.5), (None, 1), (0.0, 1), (0.2, 1)])
@in_virtual_time
async def test_a_pause_that_the_service_asks_for_is_kept_and_takes_at_least_a_second(asked: float | None, pause: float) -> None:
    one = throttle()
    await fail(one, limited(asked))
    assert await moments(one, limited(3), 2) == [pause, pause + 3]


# --- when it gives up


@pytest.mark.parametrize(("error", "cause"), [(DOWN, "service"), (limited(), "rate_limit")])
@in_virtual_time
async def test_fifteen_minutes_without_a_success_end_the_batch(error: exceptions.CloudStoreError, cause: str) -> None:
    one = throttle()
    await asyncio.sleep(1000)
    await succeed(one)
    sent = list[float]()
    for _ in range(1_000):
        try:
            await one.acquire()
        except Drained:
            break
        sent.append(now())
        one.record_failure(error)
    assert 1000 + 900 - 64 < sent[-1] <= 1000 + 900
    assert now() == sent[-1]  # nobody waits for a probe that would come too late
    found = one.error
    assert isinstance(found, exceptions.BatchInterruptedError)
    assert f"its last response: {error.reason}" in found.reason
    assert (found.operation, found.status, found.retry_after) == ("batch upload", error.status, error.retry_after)
    assert (found.cause, found.permanent) == (cause, False)


@in_virtual_time
async def test_a_pause_of_more_than_fifteen_minutes_ends_the_batch_at_once() -> None:
    one = throttle()
    await fail(one, limited(900))
    one = throttle()
    await fail(one, limited(901))
    with pytest.raises(Drained):
        await one.acquire()
    assert now() == 0
    assert isinstance(one.error, exceptions.BatchInterruptedError)
    assert (one.error.cause, one.error.retry_after) == ("rate_limit", 901)


@in_virtual_time
async def test_a_drained_throttle_sends_nothing_more_and_tells_who_waits() -> None:
    one = await probing()
    waiting = asyncio.create_task(one.acquire())
    await settle()
    one.drain()
    with pytest.raises(Drained):
        await waiting
    assert now() < 1


@pytest.mark.parametrize("waits", [True, False])
@in_virtual_time
async def test_nothing_is_sent_without_a_lease_and_a_renewed_one_lets_it_go_on(waits: bool) -> None:
    one = throttle(4)
    lease = cast("Any", one._lease)
    lease.is_valid = False
    waiting = asyncio.create_task(one.acquire())
    await asyncio.sleep(100)
    assert not waiting.done()
    lease.is_valid = waits
    one.wake()
    await settle()
    assert waiting.done() is waits
    waiting.cancel()


# --- what it tells


@in_virtual_time
async def test_what_a_batch_waits_for_names_the_time_that_passed() -> None:
    one = throttle()
    assert one.waits_for_service == ""
    await asyncio.sleep(2)
    await succeed(one)
    await fail(one, times=FAILURES_TO_PROBE)
    await asyncio.sleep(40)
    assert one.waits_for_service == "waiting for the service since 40 s, for at most 900 s"
    await succeed(one)
    assert one.waits_for_service == ""


# --- the rate


@in_virtual_time
async def test_a_rate_is_kept() -> None:
    one, sent = throttle(4), list[float]()

    async def work() -> None:
        await one.acquire()
        sent.append(now())

    await asyncio.gather(*(work() for _ in range(9)))
    assert sent == pytest.approx([number * 0.25 for number in range(9)], abs=0.011)
    await asyncio.sleep(10)
    await asyncio.gather(*(work() for _ in range(3)))
    assert sent[9:] == pytest.approx([12, 12.25, 12.5], abs=0.011)  # what was not used is not made up for
