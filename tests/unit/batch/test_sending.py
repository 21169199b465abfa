"""What is sent, what becomes of it, and when sending ends early, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cloudstore.batch.lease import Lease
from airflow_provider_cloudstore.batch.ledger import Ledger, Located, locate
from airflow_provider_cloudstore.batch.manifest import Entry, list_manifest
from airflow_provider_cloudstore.batch.outcomes import Status
from airflow_provider_cloudstore.batch.sending import Options, Sender
from airflow_provider_cloudstore.batch.state import Positions
from airflow_provider_cloudstore.batch.throttle import Throttle
from airflow_provider_cloudstore.protocol import errors
from tests.unit.batch.virtual import LOST, UNREACHABLE, Answer, VirtualService, in_virtual_thread, response, run_virtually
from tests.unit.batch.whole_batch import SETTINGS, urls


def number_of(url: str) -> int:
    return int(url.rsplit("/", maxsplit=1)[-1].split("?", maxsplit=1)[0])


class Sending:
    """The sending of a batch, over whose end one has control.

    :param wanted: URLs or entries.
    :param service: where they are sent.
    :ivar took: the seconds until it ended.
    """

    def __init__(self, wanted: list[Any], service: VirtualService, *, ledger: Ledger | None = None, **options: Any) -> None:
        self.wanted, self.service, self.options = wanted, service, Options(**options)
        self.ledger = ledger or Ledger()
        self.entries: Iterator[Located] = iter(self.located())
        self.sender: Sender
        self.took = 0.0

    def located(self) -> list[Located]:
        entries = self.wanted if self.wanted and isinstance(self.wanted[0], Entry) else list_manifest(self.wanted)()
        return list(locate(entries, None))

    def run(self, during: Callable[[Sending], Any] | None = None) -> Sending:
        """Send, and let ``during`` run at the same time."""
        for found in self.located():
            self.ledger.survey(found)
        run_virtually(self._run(during))
        return self

    async def _run(self, during: Callable[[Sending], Any] | None) -> None:
        loop = asyncio.get_running_loop()

        async def reload() -> Any:
            return SETTINGS

        throttle = Throttle(Lease([], 300, loop.time, in_virtual_thread), self.options.requests_per_second)
        async with self.service.connect(SETTINGS, reload, 99) as client:
            self.sender = Sender(client, lambda: SETTINGS, throttle, self.ledger, self.entries, self.options, in_virtual_thread)
            other = asyncio.create_task(during(self)) if during else None
            await self.sender.run()
            self.took = loop.time()
            if other:
                await other

    @property
    def error(self) -> Any:
        return self.sender.error

    @property
    def counts(self) -> dict[str, int]:
        assert sum(self.ledger.count(status) for status in Status) == self.ledger.total == len(self.wanted)
        return {status.value: self.ledger.count(status) for status in Status if self.ledger.count(status)}


def send(wanted: list[Any], answers: Callable[[str, float], Answer] | None = None, **options: Any) -> Sending:
    return Sending(wanted, VirtualService(answers or (lambda url, now: 200)), **options).run()


def by_number(answers: dict[int, Answer]) -> Callable[[str, float], Answer]:
    return lambda url, now: answers.get(number_of(url), 200)


# --- what is sent


@pytest.mark.parametrize("count", [0, 1, 5, 600])
def test_every_url_is_sent_once_and_queued(count: int) -> None:
    sent = send(urls(count))
    assert sorted(sent.service.urls) == sorted(urls(count))
    assert (sent.counts, sent.error) == ({"queued": count} if count else {}, None)


@pytest.mark.parametrize(("count", "allowed", "peak"), [(50, 7, 7), (50, 16, 16), (3, 16, 3)])
def test_as_many_requests_are_in_flight_as_allowed_and_no_more_workers_than_urls(count: int, allowed: int, peak: int) -> None:
    tasks = list[int]()

    def answer(url: str, now: float) -> Answer:
        tasks.append(len(asyncio.all_tasks()))
        return 200

    sent = send(urls(count), answer, max_concurrency=allowed)
    assert sent.service.peak == peak
    assert max(tasks) <= peak + 2  # the test's own


def test_the_manifest_is_read_on_while_requests_are_in_flight_and_never_by_two_workers_at_once() -> None:
    reading = [0]
    sending = Sending(urls(1000), VirtualService())

    def entries() -> Iterator[Located]:
        for found in sending.located():
            reading[0] += 1
            assert reading[0] == 1
            yield found
            reading[0] -= 1

    sending.entries = entries()
    assert sending.run().counts == {"queued": 1000}


@pytest.mark.parametrize(("body", "kept"), [(b'{"id": 7}', {"id": 7}), (b'{"id": NaN}', {"id": "NaN"})])
def test_with_receipts_the_response_is_kept(body: bytes, kept: Any) -> None:
    ledger = Ledger(writes_receipts=True)
    sent = Sending(urls(1), VirtualService(lambda url, now: response(200, body=body)), ledger=ledger).run()
    assert (sent.counts, sent.error) == ({"queued": 1}, None)
    (line,) = (json.loads(line) for line in ledger.drain_receipts())
    assert (line["response"], line["url"], line["status"]) == (kept, "https://source.example/0?***", "queued")


def test_without_receipts_positions_are_settled_and_the_response_is_not_read() -> None:
    positions = Positions()
    sent = Sending(urls(2), VirtualService(lambda url, now: response(200, body=b"not JSON")), ledger=Ledger(positions)).run()
    assert sent.counts == {"queued": 2}
    assert [positions.status(at) for at in range(3)] == [Status.QUEUED, Status.QUEUED, None]


def test_a_line_that_holds_nothing_to_send_has_failed_and_costs_no_request() -> None:
    entries = [
        Entry(1, urls(1)[0]),
        Entry(2, None, "the line is not JSON"),
        Entry(3, "file:///x?sig=hunter2"),
        Entry(4, urls(2)[1]),
    ]
    sent = send(entries)
    assert sent.counts == {"queued": 2, "failed": 2}
    assert len(sent.service.arrivals) == 2
    reasons = {failure["line"]: failure["error"] for failure in sent.ledger.failures}
    assert reasons[2] == "the line is not JSON"
    assert "nothing was sent" not in reasons[3]
    assert "hunter2" not in str(sent.ledger.failures)


# --- what becomes of it


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (400, "failed", "HTTP 400"),
        (422, "failed", "HTTP 422"),
        (404, "failed", "HTTP 404"),
        (LOST, "unknown", "connection lost"),
        (500, "unknown", "HTTP 500"),
        (503, "unknown", "HTTP 503"),
    ],
)
def test_a_url_that_is_rejected_has_failed_and_one_that_may_have_been_queued_is_unknown_and_neither_is_resent(
    answer: Answer, outcome: str, reason: str
) -> None:
    sent = send(urls(40), by_number(dict.fromkeys([3, 20], answer)), max_concurrency=4)
    assert (sent.counts, sent.error) == ({"queued": 38, outcome: 2}, None)
    assert len(sent.service.arrivals) == 40
    first = min(sent.ledger.failures, key=lambda failure: failure["line"])
    assert (first["line"], first["url"], first["status"]) == (4, "https://source.example/3?***", outcome)
    assert reason in first["error"]


def test_it_is_sent_again_where_the_user_opted_in() -> None:
    lost = {5, 6}

    def answer(url: str, now: float) -> Answer:
        number = number_of(url)
        if number in lost:
            lost.discard(number)
            return LOST
        return 200

    sent = send(urls(20), answer, retry_unknown_outcome=True)
    assert sent.counts == {"queued": 20}
    assert len(sent.service.arrivals) == 22


def test_it_is_still_unknown_if_all_attempts_of_who_opted_in_are_lost() -> None:
    sent = send(urls(20), by_number({3: LOST}), retry_unknown_outcome=True)
    assert sent.counts == {"queued": 19, "unknown": 1}


def test_what_never_arrived_is_resent_as_often_as_it_takes_and_fails_nobody() -> None:
    sent = send(urls(3), lambda url, now: UNREACHABLE if now < 100 else 200)
    assert (sent.counts, sent.error) == ({"queued": 3}, None)


@pytest.mark.parametrize("last", [0, 9])
def test_it_has_failed_even_if_nothing_comes_after_it(last: int) -> None:
    sent = send(urls(last + 1), by_number({last: 404}), max_concurrency=1)
    assert sent.counts == ({"queued": last} if last else {}) | {"failed": 1}
    assert sent.error is None


@pytest.mark.parametrize("status", [403, 404, 405, 302])
def test_what_failed_with_the_service_is_resent_once_the_service_works(status: int) -> None:
    sent = send(urls(100), lambda url, now: status if 0.5 < now < 20 else 200, max_concurrency=8)
    assert (sent.counts, sent.error) == ({"queued": 100}, None)
    assert 100 < len(sent.service.arrivals) < 100 + 5 + 8 + 5
    assert sent.ledger.failures == []


def test_it_is_resent_once_and_not_more_often() -> None:
    sent = send(urls(60), lambda url, now: 404 if now < 10 or number_of(url) == 2 else 200, max_concurrency=4)
    assert (sent.counts, sent.error) == ({"queued": 59, "failed": 1}, None)
    assert sent.service.urls.count(urls(3)[2]) <= 2 + 1


def test_after_an_outage_a_rejected_url_costs_one_request_again() -> None:
    def answer(url: str, now: float) -> Answer:
        return 404 if 0.5 < now < 10 or (now > 20 and number_of(url) % 10 == 0) else 200

    sent = send(urls(400), answer, max_concurrency=2)
    late = [url for moment, url in sent.service.arrivals if moment > 20 and number_of(url) % 10 == 0]
    assert len(late) > 10
    assert len(late) == len(set(late)) == sent.counts["failed"]


def test_a_service_that_fails_to_the_end_of_the_manifest_ends_the_batch() -> None:
    sent = send(urls(5), lambda url, now: 404, max_concurrency=5)
    assert isinstance(sent.error, errors.BatchInterruptedError)
    assert sent.error.cause == "service"
    assert sent.counts == {"failed": 5}
    assert len(sent.service.arrivals) == 5


# --- when it ends early


def test_a_service_that_never_recovers_ends_the_batch_after_15_minutes() -> None:
    sent = send(urls(100), lambda url, now: 403)
    assert isinstance(sent.error, errors.BatchInterruptedError)
    assert sent.error.cause == "service"
    assert sent.counts["unsent"] > 60
    assert 800 < sent.took <= 900


def test_refused_requests_in_a_row_end_the_batch() -> None:
    sent = send(urls(100), lambda url, now: 400, max_consecutive_failures=10, max_concurrency=1)
    assert isinstance(sent.error, errors.BatchStoppedError)
    assert sent.error.cause == "refused"
    assert sent.error.reason.startswith("10 requests in a row were refused (max_consecutive_failures), last: ")
    assert sent.counts == {"failed": 10, "unsent": 90}
    assert sent.error.subject == "https://source.example/9?***"


def test_lines_without_a_valid_url_do_not_count_as_refused_requests() -> None:
    bad = [Entry(at + 1, f"not-a-url-{at}") if at % 2 else Entry(at + 1, None, "no URL") for at in range(120)]
    good = [Entry(at + 121, url) for at, url in enumerate(urls(50))]
    sent = send([*bad, *good], lambda url, now: 200, max_consecutive_failures=2, max_concurrency=1)
    assert (sent.counts, sent.error) == ({"failed": 120, "queued": 50}, None)


def test_a_success_begins_the_count_anew_and_without_a_limit_nothing_is_counted() -> None:
    def answer(url: str, now: float) -> Answer:
        return 200 if number_of(url) % 3 == 2 else 400

    assert send(urls(90), answer, max_consecutive_failures=3, max_concurrency=1).counts == {"queued": 30, "failed": 60}
    assert send(urls(90), answer, max_consecutive_failures=2, max_concurrency=1).counts == {"failed": 2, "unsent": 88}
    assert send(urls(90), lambda url, now: 400).counts == {"failed": 90}


def test_failures_of_the_service_in_a_row_end_the_batch_for_a_retry() -> None:
    sent = send(urls(100), lambda url, now: 404, max_consecutive_failures=3, max_concurrency=1)
    assert isinstance(sent.error, errors.BatchInterruptedError)
    assert sent.error.cause == "service"
    assert len(sent.service.arrivals) == 3


def test_those_of_an_outage_are_not_counted() -> None:
    sent = send(urls(100), lambda url, now: 404 if now < 60 else 200, max_consecutive_failures=5, max_concurrency=3)
    assert (sent.counts, sent.error) == ({"queued": 100}, None)


def test_a_token_that_is_refused_ends_the_batch_and_leaves_the_rest_unsent() -> None:
    sent = send(urls(100), lambda url, now: 401 if number_of(url) >= 40 else 200, max_concurrency=1)
    assert isinstance(sent.error, errors.BatchStoppedError)
    assert (sent.error.cause, sent.error.status, sent.error.operation) == ("token", 401, "batch upload")
    assert sent.counts == {"queued": 40, "unsent": 60}


@pytest.mark.parametrize("error", [errors.BatchInterruptedError("the disk is full", cause="disk"), OSError("s3cret")])
def test_a_manifest_that_cannot_be_read_on_ends_the_batch_and_what_is_in_flight_finishes(error: Exception) -> None:
    sending = Sending(urls(600), VirtualService())

    def entries() -> Iterator[Located]:
        yield from sending.located()[:256]
        raise error

    sending.entries = entries()
    if isinstance(error, errors.CloudStoreError):
        assert sending.run().error is error
        assert sending.counts == {"queued": 256, "unsent": 344}
    else:
        with pytest.raises(OSError, match="s3cret"):
            sending.run()
    assert len(sending.service.arrivals) == 256


def test_a_bug_in_a_worker_ends_the_batch() -> None:
    def answer(url: str, now: float) -> Answer:
        if number_of(url) == 30:
            raise ZeroDivisionError
        return 200

    sending = Sending(urls(600), VirtualService(answer), max_concurrency=4)
    with pytest.raises(ZeroDivisionError):
        sending.run()
    assert len(sending.service.arrivals) < 40


# --- its end from outside


def test_the_first_error_is_the_one_that_is_told() -> None:
    first, second = errors.BatchStoppedError("first"), errors.BatchStoppedError("second")

    async def fail(sending: Sending) -> None:
        await asyncio.sleep(1.05)
        sending.sender.fail(first)
        sending.sender.fail(second)

    sent = Sending(urls(1000), VirtualService()).run(fail)
    assert sent.error is first
    assert sent.counts["unsent"] > 800
