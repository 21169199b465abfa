"""What is sent, what becomes of it, and when sending ends early, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.batch.ledger import Ledger
from airflow_provider_cloudstore.batch.manifest import Entry
from airflow_provider_cloudstore.batch.sending import Options, Sender
from airflow_provider_cloudstore.batch.throttle import Throttle
from tests.unit.batch.conftest import manifest_of
from tests.unit.batch.virtual import (
    LOST,
    UNREACHABLE,
    Answer,
    VirtualService,
    run_virtually,
    valid_lease,
)  # fmt: skip
from tests.unit.batch.whole_batch import SETTINGS, urls


def number_of(url: str) -> int:
    return int(url.rsplit("/", maxsplit=1)[-1].split("?", maxsplit=1)[0])


class Sending:
    """The sending of a batch, over whose end one has control.

    :param wanted: URLs or entries.
    :param service: where they are sent.
    :ivar took: the seconds until it ended.
    """

    def __init__(self, wanted: list[Any], service: VirtualService, **options: Any) -> None:
        self.wanted, self.service, self.options = wanted, service, Options(**options)
        self.manifest = manifest_of(wanted)
        self.ledger = Ledger()
        self.entries = self.manifest()
        self.took = self.reading_takes = 0.0
        self.error: Any = None

    def run(self, during: Callable[[Sending], Any] | None = None) -> Sending:
        """Send, and let ``during`` run at the same time."""
        self.ledger.survey(self.manifest())
        run_virtually(self._run(during))
        return self

    async def _run(self, during: Callable[[Sending], Any] | None) -> None:
        loop = asyncio.get_running_loop()

        async def reload() -> Any:
            return SETTINGS

        throttle = Throttle(valid_lease(), self.options.requests_per_second)
        async with self.service.connect(SETTINGS, reload, 99) as client:
            sender = Sender(client, lambda: SETTINGS, throttle, self.ledger, self.entries, self.options, self._in_thread)
            other = asyncio.create_task(during(self)) if during else None
            await sender.run()
            self.took, self.error = loop.time(), throttle.error
            if other:
                await other

    def _in_thread(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            await asyncio.sleep(self.reading_takes)
            return work()

        return asyncio.get_running_loop().create_task(run())

    @property
    def counts(self) -> dict[str, int]:
        assert sum(self.ledger.counts.values()) == self.ledger.total == len(self.wanted)
        return {status.value: count for status, count in self.ledger.counts.items() if count}


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
def test_as_many_requests_are_in_flight_as_allowed(count: int, allowed: int, peak: int) -> None:
    assert send(urls(count), max_concurrency=allowed).service.peak == peak


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


@pytest.mark.parametrize("status", [403, 404, 405, 302])
def test_what_is_rejected_in_an_outage_has_failed_and_few_are(status: int) -> None:
    sent = send(urls(100), lambda url, now: status if 0.5 < now < 20 else 200, max_concurrency=8)
    assert sent.error is None
    assert 5 <= sent.counts["failed"] <= 5 + 8 + 5
    assert sent.counts["queued"] + sent.counts["failed"] == len(sent.service.arrivals) == 100


# --- when it ends early


def test_refused_requests_in_a_row_end_the_batch() -> None:
    sent = send(urls(100), lambda url, now: 400, max_consecutive_failures=10, max_concurrency=1)
    assert isinstance(sent.error, exceptions.BatchStoppedError)
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


def test_failures_of_the_service_are_not_counted_as_refused() -> None:
    sent = send(urls(100), lambda url, now: 404 if now < 60 else 200, max_consecutive_failures=2, max_concurrency=3)
    assert sent.error is None
    assert sent.counts["failed"] > 2


@pytest.mark.parametrize("answer", [429, UNREACHABLE])
@pytest.mark.parametrize("retry_unknown_outcome", [False, True])
def test_what_had_no_effect_is_sent_again_however_often(answer: Answer, retry_unknown_outcome: bool) -> None:
    sent = send(urls(600), lambda url, now: answer if now < 300 else 200, retry_unknown_outcome=retry_unknown_outcome)
    assert (sent.counts, sent.error) == ({"queued": 600}, None)
    assert len(sent.service.arrivals) > 600


def test_what_had_no_effect_is_not_lost_while_more_is_read() -> None:
    limited = {"https://source.example/250?sig=hunter2"}

    def answer(url: str, now: float) -> Answer:
        if url in limited:
            limited.remove(url)
            return 429
        return 200

    service = VirtualService(answer)
    sending = Sending(urls(600), service)
    sending.reading_takes = 1.0
    assert sending.run().counts == {"queued": 600}


def test_a_token_that_is_refused_ends_the_batch_and_leaves_the_rest_unsent() -> None:
    sent = send(urls(100), lambda url, now: 401 if number_of(url) >= 40 else 200, max_concurrency=1)
    assert isinstance(sent.error, exceptions.BatchStoppedError)
    assert (sent.error.cause, sent.error.status, sent.error.operation) == ("token", 401, "batch upload")
    assert sent.counts == {"queued": 40, "unsent": 60}


@pytest.mark.parametrize(
    "error", [exceptions.BatchInterruptedError("the manifest cannot be read", cause="store"), OSError("s3cret")]
)
def test_a_manifest_that_cannot_be_read_on_ends_the_batch_and_what_is_in_flight_finishes(error: Exception) -> None:
    sending = Sending(urls(600), VirtualService())

    def entries() -> Iterator[Entry]:
        yield from islice(sending.manifest(), 256)
        raise error

    sending.entries = entries()
    if isinstance(error, exceptions.CloudStoreError):
        assert sending.run().error is error
        assert sending.counts == {"queued": 256, "unsent": 344}
    else:
        with pytest.raises(OSError, match="s3cret"):
            sending.run()
    assert len(sending.service.arrivals) == 256
