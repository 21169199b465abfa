"""What is sent and when, what becomes of it, and when sending ends early, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.sender import BatchEnded, Throttle
from tests.unit.batch.virtual import LOST, UNREACHABLE, Answer, VirtualService, in_virtual_time, now, response
from tests.unit.batch.whole_batch import Batch, counts, urls


def number_of(url: str) -> int:
    return int(url.rsplit("/", maxsplit=1)[-1].split("?", maxsplit=1)[0])


def send(wanted: list[Any], answers: Callable[[str, float], Answer], **options: Any) -> tuple[Batch, Ledger]:
    batch = Batch(wanted, VirtualService(answers))
    return batch, batch.run(**options)


# --- what is sent


def test_as_many_requests_are_in_flight_as_allowed() -> None:
    batch, _ = send(urls(50), lambda url, now: 200, max_concurrency=7)
    assert batch.service.peak == 7


def test_a_line_that_holds_nothing_to_send_has_failed_and_costs_no_request() -> None:
    entries = [Entry(1, urls(1)[0]), Entry(2, None, "the line is not JSON"), Entry(3, "file:///x?sig=hunter2")]
    batch, report = send(entries, lambda url, now: 200)
    assert counts(report) == {"queued": 1, "failed": 2}
    assert batch.requests == 1
    reasons = {failure["line"]: failure["error"] for failure in report.failures}
    assert reasons[2] == "the line is not JSON"
    assert "nothing was sent" not in reasons[3]
    assert "hunter2" not in str(report.failures)


# --- what becomes of it


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [(404, "failed", "HTTP 404"), (LOST, "unknown", "connection lost"), (503, "unknown", "HTTP 503")],
)
def test_a_url_that_is_rejected_has_failed_and_one_that_may_have_been_queued_is_unknown_and_neither_is_resent(
    answer: Answer, outcome: str, reason: str
) -> None:
    batch, report = send(urls(40), lambda url, now: answer if number_of(url) in (3, 20) else 200, max_concurrency=4)
    assert counts(report) == {"queued": 38, outcome: 2}
    assert batch.requests == 40
    first = min(report.failures, key=lambda failure: failure["line"])
    assert (first["line"], first["url"], first["status"]) == (4, "https://source.example/3?***", outcome)
    assert reason in first["error"]


def test_it_is_resent_where_the_user_opted_in() -> None:
    batch, report = send(urls(20), lambda url, now: LOST if now < 0.05 else 200, retry_unknown_outcome=True, max_concurrency=2)
    assert counts(report) == {"queued": 20}
    assert batch.requests == 22
    for refusal in (503, 409):
        _, report = send(urls(1), lambda url, now: LOST if now < 0.05 else refusal, retry_unknown_outcome=True)  # noqa: B023
        assert counts(report) == {"unknown": 1}


@pytest.mark.parametrize("answer", [429, UNREACHABLE])
def test_what_had_no_effect_is_sent_again_however_often(answer: Answer) -> None:
    batch, report = send(urls(40), lambda url, now: answer if now < 30 else 200)
    assert (counts(report), report.error) == ({"queued": 40}, None)
    assert batch.requests > 40


def test_others_have_their_turn_while_lines_without_a_url_are_read() -> None:
    begun, delays = list[int](), list[int]()

    def note(before: int) -> None:
        delays.append(len(begun) - before)

    def entries() -> Iterator[Entry]:
        for line in range(1, 3001):
            begun.append(line)
            asyncio.get_running_loop().call_soon(note, len(begun))
            yield Entry(line, problem="no URL")

    Batch([]).run(read=lambda: entries)
    assert max(delays[3000:]) < 1000  # the first reading is in a thread, elsewhere


# --- when it ends early


def test_refused_requests_in_a_row_end_the_batch() -> None:
    _, report = send(urls(100), lambda url, now: 400, max_consecutive_failures=10, max_concurrency=1)
    assert isinstance(report.error, exceptions.BatchFailedError)
    assert report.error.reason.startswith("10 requests in a row were refused (max_consecutive_failures), last: ")
    assert report.error.subject == "https://source.example/9?***"
    assert counts(report) == {"failed": 10, "unsent": 90}


def test_neither_lines_without_a_url_nor_failures_of_the_service_count_as_refused_and_a_success_begins_the_count_anew() -> None:
    def answer(url: str, now: float) -> Answer:
        return {0: 200, 1: 400}.get(number_of(url) % 4, 503)

    bad = [Entry(at + 1, f"not-a-url-{at}") if at % 2 else Entry(at + 1, None, "no URL") for at in range(20)]
    good = [Entry(at + 21, url) for at, url in enumerate(urls(40))]
    _, report = send([*bad, *good], answer, max_consecutive_failures=2, max_concurrency=1)
    assert isinstance(report.error, exceptions.BatchFailedError)
    assert counts(report) == {"failed": 30, "unknown": 20, "queued": 10}


REFUSED_IN_WORDS = response(200, body=b'{"status": "error", "message": "access_token expired"}')


@pytest.mark.parametrize(
    ("answer", "kind", "todo"),
    [
        (401, exceptions.BatchInterruptedError, "Set the connection's password"),
        (REFUSED_IN_WORDS, exceptions.BatchInterruptedError, "Set the connection's password"),
    ],
)
def test_a_connection_that_is_refused_ends_the_batch_and_leaves_the_rest_unsent(
    answer: Answer, kind: type[exceptions.CloudStoreError], todo: str
) -> None:
    _, report = send(urls(100), lambda url, now: answer if number_of(url) >= 40 else 200, max_concurrency=1)
    assert isinstance(report.error, kind)
    assert todo in report.error.advice
    assert counts(report) == {"queued": 40, "unsent": 60}


def test_a_token_that_is_refused_once_is_tried_again_and_a_success_begins_the_count_anew() -> None:
    answers = itertools.cycle([401, 200])
    batch, report = send(urls(12), lambda url, now: next(answers), max_concurrency=1)
    assert (batch.requests, counts(report)) == (24, {"queued": 12})


# --- when a request may be sent

DOWN = exceptions.TransientServiceError("HTTP 500", status=500)
REJECTED = exceptions.RequestRejectedError("HTTP 400", status=400)


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
async def test_a_failing_service_gets_a_request_after_1_2_4_8_16_and_32_seconds_until_one_succeeds() -> None:
    one = throttle()
    for _ in range(25):
        await one.acquire()
    for _ in range(25):  # what was sent before it failed does not prolong the pause
        one.record_failure(DOWN)
    assert await moments(one, DOWN, 6) == [1, 2, 4, 8, 16, 32]
    await one.acquire()
    one.record_success()
    assert await moments(one, REJECTED, 3) == [64] * 3
    assert await moments(one, DOWN, 2) == [64, 65]


@pytest.mark.parametrize(("asked", "pause"), [(7.5, 7.5), (None, 1)])
@in_virtual_time
async def test_a_pause_that_the_service_asks_for_is_kept_and_takes_at_least_a_second(asked: float | None, pause: float) -> None:
    assert await moments(throttle(), limited(asked), 3) == [0, pause, 2 * pause]


@pytest.mark.parametrize("error", [DOWN, limited(), limited(59.0)], ids=str)
@in_virtual_time
async def test_a_minute_without_a_success_ends_the_batch_counted_from_the_first_failure(
    error: exceptions.CloudStoreError,
) -> None:
    error.advice = "Ask Ada."
    one = throttle()
    await one.acquire()
    one.record_success()
    await asyncio.sleep(1000)
    with pytest.raises(BatchEnded):
        await moments(one, error, 1_000)
    assert 1060 <= now() - (error.retry_after or 0) <= 1120  # a pause that it asks for is no failure
    assert isinstance(one.error, exceptions.BatchInterruptedError)
    assert f"its last response: {error.reason}" in one.error.reason
    assert ("Ask Ada." in one.error.advice, one.error.status, one.error.permanent) == (True, error.status, False)


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
