from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.file_wait import FileWait

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def begun(interval: float = 5, timeout: float = 60) -> FileWait:
    return FileWait("f1", interval, timeout, NOW)


def logged(wait: FileWait, *errors: CloudStoreError) -> list[str]:
    """What a wait logs of its polls."""
    lines: list[str] = []
    for error in errors:
        wait.next_pause_or_raise(error, NOW, lines.append)
    return lines


MISSING = exceptions.NotFoundError("x")
UNCLEAR = exceptions.PermissionDeniedError("HTTP 403: no")


def ended_after(wait: FileWait, polls: Sequence[tuple[float, CloudStoreError]]) -> float | None:
    """The second in which a wait ended with the error of a poll, given what it polled when."""
    for second, error in polls:
        try:
            assert wait.next_pause_or_raise(error, after(second), print) > 0
        except CloudStoreError as end:
            if end is not error:
                raise
            return second
    return None


@pytest.mark.parametrize(("error", "end"), [(MISSING, None), (UNCLEAR, None), (exceptions.AuthenticationError("x"), 0)])
def test_only_what_looking_again_cannot_help_ends_the_wait_at_once(error: CloudStoreError, end: float | None) -> None:
    assert ended_after(begun(), [(0, error)]) == end


@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        ((0, 15, 29.9, 30), 30),
        ((0, 40, 41), 41),
        ((0, 1, 2, 3, 29, 31, 32), 31),
        ((600, 1200, 1800), 1800),
    ],
)
def test_three_inconclusive_responses_in_a_row_that_span_thirty_seconds_end_the_wait(
    seconds: tuple[float, ...], end: float | None
) -> None:
    polls = list(zip(seconds, [UNCLEAR, exceptions.InvalidResponseError("page")] * 4, strict=False))
    assert ended_after(begun(timeout=7200), polls) == end


def test_any_other_response_starts_the_row_anew() -> None:
    polls = [(0, UNCLEAR), (20, UNCLEAR), (40, MISSING), (50, UNCLEAR), (60, UNCLEAR), (79, UNCLEAR)]
    assert ended_after(begun(timeout=7200), [*polls, (80, UNCLEAR)]) == 80
    assert ended_after(begun(timeout=7200), [*polls[:4], (81, UNCLEAR), (82, UNCLEAR)]) == 82


def test_the_log_says_why_the_wait_goes_on_whenever_that_changes() -> None:
    wait, ends = begun(), "polling every 5 s"
    polls = [UNCLEAR, UNCLEAR, *(exceptions.NotFoundError(what) for what in ("a", "a", "b"))]
    assert logged(wait, *polls) == [
        f"File 'f1' is not available yet (HTTP 403: no); {ends}",
        f"File 'f1' is not available yet (a); {ends}",
        f"File 'f1' is not available yet (b); {ends}",
    ]


def test_pauses_are_spread_around_the_interval() -> None:
    wait = begun(10)
    pauses = [wait.next_pause_or_raise(MISSING, NOW, print) for _ in range(500)]
    assert 8 <= min(pauses) < 8.5
    assert 11.5 < max(pauses) <= 12
    firsts = [wait.first_pause(NOW) for _ in range(500)]  # the scheduler must have settled the deferral
    assert 10 <= min(firsts) < 10.5
    assert 19.5 < max(firsts) <= 20
    assert begun(10, 2).first_pause(NOW) == 10
    asked = [
        FileWait("f1", 10, 60, NOW, after(40)).first_pause(NOW) for _ in range(100)
    ]  # not before the service's pause is over
    assert 40 <= min(asked) <= max(asked) <= 50


def test_a_pause_is_as_long_as_the_service_asks_and_a_wait_ends_rather_than_ask_again_before_it_is_over() -> None:
    wait = begun(10)
    assert wait.next_pause_or_raise(exceptions.RateLimitError("x", retry_after=30), NOW, print) == 30
    with pytest.raises(exceptions.FileWaitTimeoutError):
        wait.next_pause_or_raise(exceptions.RateLimitError("x", retry_after=300), NOW, print)
    assert wait.next_pause_or_raise(MISSING, after(57), print) == 3


def test_a_wait_that_ends_without_the_file_says_for_how_long_for_what_and_the_last_words() -> None:
    wait = begun(timeout=90)
    assert "not available within 90 s; last response: none" in str(wait.timed_out())
    wait.next_pause_or_raise(exceptions.NotFoundError("HTTP 404: earlier"), after(wait.timeout - 0.1), print)
    with pytest.raises(exceptions.FileWaitTimeoutError) as ended:
        wait.next_pause_or_raise(exceptions.NotFoundError("HTTP 404: no"), after(wait.timeout), print)
    assert str(ended.value) == (
        "wait 'f1': the file was not available within 90 s; last response: HTTP 404: no.\n"
        "Check the file id, and in the service whether the upload failed; or allow more time with 'timeout'."
    )
    assert ended.value.permanent
