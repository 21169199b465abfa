from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.protocol.attempts import Attempts, pause_before_retry
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import RECEIVED, TOKEN, response, result_of, settings

SOURCE = "https://user:pass%2Bword@host/file?sig=pre%2Fsigned"

Outcome = Response | TransportFailure

LOST = TransportFailure(FailureKind.OUTCOME_UNKNOWN, "connection reset")
NEVER_SENT = TransportFailure(FailureKind.UNREACHABLE, "no connection to the service: connection refused")


class Loop:
    """A client without a socket: it plays outcomes, and notes what the policy does between them."""

    def __init__(
        self,
        kind: type[Operation[Any]],
        subject: str,
        own: Settings,
        *outcomes: Outcome,
        budget: float = 300.0,
        next_token: str = TOKEN,
    ) -> None:
        self.slept: list[float] = []
        self.lines: list[str] = []
        self.tokens: list[str] = []
        self.operation, self.settings, self.outcomes = kind(own, subject), own, iter(outcomes)
        self.budget, self.next_token = budget, next_token

    def run(self) -> Any:
        attempts = Attempts(self.settings.max_attempts)
        while True:
            attempts, used = attempts.next(), self.settings
            request = self.operation.request(used)
            self.tokens.append(request.headers.get("Authorization", request.url))
            ended = self.operation.interpret(next(self.outcomes), used, attempts)
            if not isinstance(ended, exceptions.CloudStoreError):
                return ended
            pause = pause_before_retry(ended, attempts, self.budget, self.lines.append)
            if pause is None:
                raise ended
            self.slept.append(pause)
            if attempts.needs_token(ended):
                self.settings = replace(used, access_token=Secret(self.next_token))
                if self.settings == used:
                    raise ended
            attempts = attempts.after(ended, used.access_token)


def test_a_first_success_is_the_result_with_nothing_said() -> None:
    loop = Loop(DeleteFolder, "d1", settings(), response(body={"response": "gone"}))
    assert loop.run().to_dict() == {
        "folder_id": "d1",
        "requested_at": "2026-01-01T00:00:00Z",
        "response": {"response": "gone"},
        "existed": True,
    }
    assert (loop.lines, loop.slept) == ([], [])


def test_an_upload_is_dated_by_when_it_was_asked_for_and_not_by_the_answer() -> None:
    assert result_of(UploadFromUrl(settings(), "http://h/f"), response()).requested_at == RECEIVED.subtract(seconds=1)


def test_a_link_is_looked_for_where_the_connection_says() -> None:
    own = settings(token_path=("a", "b"))
    link = Loop(CreateDownloadLink, "f1", own, response(body={"a": {"b": "t"}, "token": "not this", "expires_in": 60})).run()
    assert (link.file_id, link.token, link.created_at, link.expires_at) == ("f1", "t", RECEIVED, RECEIVED.add(seconds=60))


def test_each_retry_is_one_line_with_operation_attempt_reason_and_delay() -> None:
    loop = Loop(DeleteFolder, "d1", settings(), NEVER_SENT, response(429, retry_after="7"), response())
    loop.run()
    assert loop.slept[1] == 7
    assert loop.lines == [
        "delete folder 'd1': attempt 1 of 4 failed "
        "(no connection to the service: connection refused, at https://files.example.com); "
        f"retrying in {loop.slept[0]:.1f} s",
        "delete folder 'd1': attempt 2 of 4 failed (HTTP 429); retrying in 7.0 s",
    ]


def test_pauses_grow_to_a_minute_and_are_spread_over_all_of_their_range() -> None:
    pauses = []
    for _ in range(300):
        loop = Loop(DeleteFolder, "d1", settings(max_attempts=8), *[NEVER_SENT] * 7, response(), budget=1e9)
        loop.run()
        pauses.append(loop.slept)
    for number, longest in ((0, 1), (2, 4), (6, 60)):
        seconds = [slept[number] for slept in pauses]
        assert 0 <= min(seconds) < 0.2 * longest
        assert 0.8 * longest < max(seconds) <= longest


def test_a_pause_that_would_end_after_the_budget_is_not_begun() -> None:
    loop = Loop(DeleteFolder, "d1", settings(), response(429, retry_after="3600"), response())
    with pytest.raises(exceptions.RateLimitError) as failed:
        loop.run()
    assert loop.slept == []
    assert failed.value.retry_after == 3600
    assert "(attempt" not in str(failed.value)


def test_a_lost_deletion_is_remembered_over_other_failures() -> None:
    loop = Loop(DeleteFolder, "d1", settings(), LOST, response(429, retry_after="0"), response(404, b"gone"))
    assert loop.run().response == "gone"


def test_a_refused_token_that_the_connection_still_holds_is_an_error_with_its_status() -> None:
    loop = Loop(DeleteFolder, "d1", settings(), response(401))
    with pytest.raises(exceptions.AuthenticationError) as refused:
        loop.run()
    assert (refused.value.status, refused.value.attempts, loop.slept) == (401, 1, [0.0])


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (NEVER_SENT, "connection refused"),
        (response(401), "HTTP 401"),
        (response(400, f"{TOKEN} new-token".encode()), r"HTTP 400: \*\*\* \*\*\*"),  # the old one stays a secret
    ],
)
def test_a_refused_token_is_replaced_by_the_one_that_the_connection_holds_now_once_and_for_one_more_attempt(
    second: Outcome, says: str
) -> None:
    loop = Loop(DeleteFolder, "d1", settings(max_attempts=1), response(401), second, next_token="new-token")
    with pytest.raises(exceptions.CloudStoreError, match=says):
        loop.run()
    assert loop.tokens == [f"Bearer {TOKEN}", "Bearer new-token"]
    assert loop.slept == [0]
    assert loop.lines == ["delete folder 'd1': the service refused the access token; reading the connection again for a new one"]


def test_a_download_token_in_an_error_is_not_repeated() -> None:
    body = {"ok": False, "data": {"token": "one-time-77"}, "message": "link one-time-77 is not ready"}
    with pytest.raises(exceptions.ServiceError, match=r"link \*\*\* is not ready") as failed:
        Loop(DeleteFolder, "d1", settings(), response(body=body)).run()
    assert failed.value.message == "link *** is not ready"


def test_an_id_that_holds_the_token_is_not_shown() -> None:
    with pytest.raises(exceptions.RequestRejectedError) as failed:
        Loop(DeleteFolder, f"x-{TOKEN}", settings(), response(400)).run()
    assert TOKEN not in str(failed.value)
    assert TOKEN not in failed.value.subject


def test_an_error_names_operation_subject_status_and_what_to_do() -> None:
    with pytest.raises(exceptions.NotFoundError) as failed:
        Loop(CreateDownloadLink, "f1", settings(), response(404, {"response": "No such file"})).run()
    error = failed.value
    assert (error.operation, error.subject, error.status, error.sent, error.attempts) == ("download link", "f1", 404, True, 1)
    assert str(error).startswith("download link 'f1': HTTP 404: No such file.\nCheck the id")
    assert error.__cause__ is None
    assert error.__context__ is None


def test_an_answer_without_a_token_names_its_keys() -> None:
    with pytest.raises(exceptions.InvalidResponseError, match=r"it has the keys data, data\.x") as failed:
        Loop(CreateDownloadLink, "f1", settings(), response(body={"data": {"x": "hunter2"}})).run()
    assert "hunter2" not in str(failed.value)
    assert failed.value.status == 200


def test_what_is_stored_of_an_answer_holds_no_secret() -> None:
    echo = {"url": SOURCE, "list": [TOKEN], f"{TOKEN}.": 1, "sig.": "pre/signed"}
    assert Loop(UploadFromUrl, SOURCE, settings(), response(body=echo)).run().response == {
        "url": "https://***@host/file?***", "list": ["***"], "***.": 1, "sig.": "***",
    }  # fmt: skip
    numbers = Loop(DeleteFolder, "d1", settings(token="12345678"), response(body={"number": 12345678})).run()
    assert numbers.response == {"number": "***"}
    assert Loop(DeleteFolder, "d1", settings(), response(body=TOKEN.encode())).run().response == "***"


def test_download_tokens_in_the_response_to_another_operation_are_not_stored() -> None:
    url = "https://files.example.com/d/f1?part=1&download_token=hunter2&x=2"
    body = {"data": {"file_id": "f1", "download_url": url, "download_token": "hunter2", "text": f"get it at {url}, or not"}}
    redacted = "https://files.example.com/d/f1?part=1&download_token=***&x=2"
    assert Loop(DeleteFolder, "d1", settings(), response(body=body)).run().response == {
        "data": {"file_id": "f1", "download_url": redacted, "download_token": "***", "text": f"get it at {redacted}, or not"}
    }
    assert Loop(DeleteFolder, "d1", settings(), response(body={"at": "ftp://me:hunter2@host/x"})).run().response == {
        "at": "ftp://***@host/x"
    }


def test_a_secret_that_would_be_cut_in_two_is_redacted_before() -> None:
    for padding in (285, 299):
        with pytest.raises(exceptions.RequestRejectedError) as failed:
            Loop(DeleteFolder, "d1", settings(), response(400, ("x" * padding + TOKEN * 3).encode())).run()
        assert TOKEN[:6] not in str(failed.value)
        assert "HTTP 400: xxx" in str(failed.value)


@pytest.mark.parametrize("file_id", ["file-12345678", 12345678])
def test_an_id_that_is_also_a_credential_of_the_source_url_reaches_the_pipeline_unchanged(file_id: Any) -> None:
    url = f"https://src/get?token={file_id}"
    body = {"data": {"file_id": file_id, "message": f"queued {url}"}}
    upload = result_of(UploadFromUrl(settings(), url), response(200, body))
    assert upload.file_id == str(file_id)
    assert upload.response == {"data": {"file_id": file_id, "message": "queued https://src/get?***"}}


PATTERN = re.compile("no such (folder|file)", re.IGNORECASE)
ENVELOPE = {"status": "error", "response": "There is no such folder"}


def test_an_envelope_that_matches_the_pattern_means_not_found_but_an_upload_has_no_subject_that_could_be_missing() -> None:
    own = settings(not_found_pattern=PATTERN)
    assert result_of(DeleteFolder(own, "f", ignore_missing=True), response(200, ENVELOPE), own).existed is False
    with pytest.raises(exceptions.NotFoundError):
        result_of(CreateDownloadLink(own, "f"), response(200, ENVELOPE), own)
    with pytest.raises(exceptions.ServiceError):
        result_of(UploadFromUrl(own, "http://h/f"), response(200, ENVELOPE), own)


@pytest.mark.parametrize(
    ("body", "path", "file_id"),
    [
        ({"file_id": "f1"}, (), "f1"),
        ({"file_id": 17}, (), "17"),
        ({"data": {"file_id": "f1"}}, (), "f1"),
        ({"id": "q1"}, (), ""),  # it may be the id of the queue's entry
        *[({"file_id": nothing}, (), "") for nothing in (0, -1, "-1", "", "null", None, False, True, ["f1"])],
        *[({"file_id": written}, (), written) for written in ("my file 1", " f1 ", '<"a">', "a\u200fb", "/x/y", "1.5")],
        ({"file_id": TOKEN}, (), ""),
        ("f1a2", (), "f1a2"),
        ("OK", (), ""),
        (1, (), ""),
        ({"files": [{"key": "k1"}], "file_id": "f1"}, ("files", "0", "key"), "k1"),
    ],
)
def test_an_upload_tells_the_id_of_its_file_where_the_answer_does(body: Any, path: tuple[str, ...], file_id: str) -> None:
    own = settings(file_id_path=path)
    assert result_of(UploadFromUrl(own, "http://h/f"), response(200, body), own).file_id == file_id


def test_an_upload_without_an_id_where_its_owner_says_that_there_is_one_is_unknown_and_shows_the_services_words() -> None:
    own = settings(file_id_path=("files", "0", "key"))
    with pytest.raises(exceptions.OutcomeUnknownError, match="no file id where extra 'file_id_path' leads: refused by policy"):
        result_of(UploadFromUrl(own, "http://h/f"), response(200, {"file_id": "f1", "msg": "refused by policy"}), own)
