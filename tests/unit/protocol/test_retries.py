"""When an attempt follows another, and what operations make of one."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.retries import Retries
from tests.support import RECEIVED, TOKEN, connected, response, result_of, settings

SOURCE = "https://user:pass%2Bword@host/file?sig=pre%2Fsigned"


def test_each_retry_is_one_line_with_operation_attempt_reason_and_delay(caplog: pytest.LogCaptureFixture) -> None:
    refused: Any = TransportFailure(False, "no connection to the service: connection refused")
    pauses = list[float]()
    for attempt, outcome in enumerate((refused, response(429, retry_after="7")), 1):
        error: Any = Attempt(DeleteFolder(settings(), "d1"), settings()).interpret(outcome)
        pauses.append(Retries(settings(), count=attempt).next_pause_or_raise(error))
    assert pauses[1] == 7
    assert caplog.messages == [
        "delete folder 'd1': attempt 1 of 4 failed "
        "(no connection to the service: connection refused (at https://files.example.com)); "
        f"retrying in {pauses[0]:.1f} s",
        "delete folder 'd1': attempt 2 of 4 failed (HTTP 429); retrying in 7.0 s",
    ]


@pytest.mark.parametrize(("attempt", "longest"), [(1, 1), (3, 4), (7, 60), (2000, 60)])
def test_pauses_grow_to_a_minute_and_are_spread_over_all_of_their_range(attempt: int, longest: float) -> None:
    error = exceptions.ServiceUnreachableError("refused")
    seconds = [Retries(settings(), 2001, attempt).next_pause_or_raise(error) for _ in range(300)]
    assert 0 <= min(seconds) < 0.2 * longest
    assert 0.8 * longest < max(seconds) <= longest


def test_the_pauses_of_a_call_are_five_minutes_at_most() -> None:
    retries, limited = Retries(settings(), 9, 1), exceptions.RateLimitError("HTTP 429", retry_after=150)
    assert [retries.next_pause_or_raise(limited) for _ in range(2)] == [150, 150]
    with pytest.raises(exceptions.RateLimitError):
        retries.next_pause_or_raise(limited)


def test_a_result_is_dated_by_when_it_was_asked_for_and_not_by_the_answer() -> None:
    assert result_of(UploadFromUrl(settings(), "http://h/f"), response()).requested_at == RECEIVED.subtract(seconds=1)


def test_a_download_token_in_an_error_is_not_repeated_but_words_are() -> None:
    body = {"ok": False, "data": {"token": "one-time-77"}, "message": "link one-time-77 is not ready"}
    shown = ((response(body=body), "link *** is not ready"), (response(409, body), "link *** is not ready"))
    for got, words in (*shown, (response(403, b"Forbidden"), "Forbidden")):
        with pytest.raises(exceptions.CloudStoreError) as failed:
            result_of(CreateDownloadLink(settings(), "f1"), got)
        assert failed.value.message == words


def test_an_id_that_holds_the_token_is_not_shown() -> None:
    with pytest.raises(exceptions.RequestRejectedError) as failed:
        result_of(DeleteFolder(settings(), f"x-{TOKEN}"), response(400))
    assert TOKEN not in str(failed.value)
    assert TOKEN not in failed.value.subject


def test_an_error_names_operation_subject_status_and_what_to_do() -> None:
    with pytest.raises(exceptions.NotFoundError) as failed:
        result_of(CreateDownloadLink(settings(), "f1"), response(404, {"response": "No such file"}))
    error = failed.value
    assert (error.operation, error.subject, error.status, error.sent, error.attempts) == ("download link", "f1", 404, True, 1)
    assert str(error).startswith("download link 'f1': HTTP 404: No such file.\nA queued file")
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_secret_that_would_be_cut_in_two_is_redacted_before() -> None:
    for padding in (285, 299):
        with pytest.raises(exceptions.RequestRejectedError) as failed:
            result_of(DeleteFolder(settings(), "d1"), response(400, ("x" * padding + TOKEN * 3).encode()))
        assert TOKEN[:6] not in str(failed.value)
        assert "HTTP 400: xxx" in str(failed.value)


@pytest.mark.parametrize("file_id", ["file-12345678", 12345678])
def test_an_id_that_is_also_a_credential_of_the_source_url_reaches_the_pipeline_unchanged(file_id: Any) -> None:
    url = f"https://src/get?token={file_id}"
    body = {"data": {"file_id": file_id, "message": f"queued {url}"}}
    upload = result_of(UploadFromUrl(settings(), url), response(200, body))
    assert upload.file_id == str(file_id)
    assert upload.response == {"data": {"file_id": file_id, "message": "queued https://src/get?***"}}


@pytest.mark.parametrize(
    ("body", "path", "file_id"),
    [
        ({"id": "q1"}, "", ""),  # it may be the id of the queue's entry
        *[({"file_id": nothing}, "", "") for nothing in (0, -1, "-1", "", "null", None, False, True, ["f1"])],
        *[({"file_id": written}, "", written) for written in ("my file 1", " f1 ", '<"a">', "a\u200fb", "/x/y", "1.5")],
        ({"file_id": TOKEN}, "", ""),
        ("f1a2", "", ""),
        (1, "", ""),
        ({"files": [{"key": "k1"}], "file_id": "f1"}, "files.0.key", "k1"),
    ],
)
def test_an_upload_tells_the_id_of_its_file_where_the_answer_does(body: Any, path: str, file_id: str) -> None:
    own = connected({"file_id_path": path})
    assert result_of(UploadFromUrl(own, "http://h/f"), response(200, body), own).file_id == file_id
