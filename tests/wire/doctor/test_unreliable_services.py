"""What no setting bends: services and addresses that tasks cannot rely on are never reported as usable."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cloudstore.doctor.report import Report
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK
from tests.wire.doctor import services
from tests.wire.doctor.services import (
    AS_ASSUMED,
    CONTRADICTS,
    FOLDER,
    NEEDS,
    NOT_TRIED,
    Reply,
    Storage,
    StoredFile,
    connect,
    examine,
    verdicts,
)

READ_ONLY: dict[str, Any] = {"upload": None, "delete_folder": None, "requests": 0}


def report_of(service: Storage, monkeypatch: pytest.MonkeyPatch, **plan: Any) -> Report:
    with services.running(service):
        connect(monkeypatch, service.url)
        return examine(service, **plan)


class LinksForAnything(Storage):
    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        return self.grant(file_id)


def test_links_to_files_that_do_not_exist_make_waits_meaningless(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(LinksForAnything(), monkeypatch, requests=0)
    assert report["not found"].verdict is CONTRADICTS
    assert "waits end at once" in report["not found"].meaning
    assert report["token"].verdict is AS_ASSUMED
    assert report["availability"].verdict is NOT_TRIED
    assert not report.usable


class SameEverywhere(Storage):
    """Something else at the base URL."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__()
        self._status, self._body = status, body

    def respond(self, method: str, target: str, given: dict[str, str], headers: Any) -> Reply:
        self.paths.append(target)
        path = target.partition("?")[0]
        body = {key: str(text).format(path=path, target=target) for key, text in self._body.items()}
        return Reply(self._status, body.get("", body))


EVERYWHERE: dict[str, tuple[int, dict[str, Any]]] = {
    "not found": (404, {"message": "Not found"}),
    "without a message": (404, {"detail": "Not Found"}),
    "empty": (404, {"": ""}),
    "text": (404, {"": "no such route"}),
    "with the path": (404, {"message": "The route {path} could not be found."}),
    "with the path as text": (404, {"": "Cannot GET {path}"}),
    "with the path and a time": (404, {"timestamp": "2026-11-22T20:56:50.123", "error": "Not Found", "path": "{path}"}),
    "with the whole target": (404, {"error": "no handler for {target}"}),
    "an envelope": (200, {"status": "error", "message": "Unknown method"}),
    "an envelope with the path": (200, {"status": "error", "message": "Unknown method {path}"}),
    "a word": (200, {"": "Welcome"}),
    "a token": (200, {"token": "abcdefgh"}),
    "nothing of use": (200, {"name": "another service"}),
    "a page": (404, {"": "<html>Not Found</html>"}),
    "a front page": (200, {"": "<html>Welcome</html>"}),
    "forbidden": (403, {"message": "Forbidden"}),
    "bad request": (400, {"message": "Bad request"}),
    "a failure": (500, {"message": "Oops"}),
    "unauthorized": (401, {"message": "Log in"}),
    "wrong method": (405, {"message": "Method not allowed"}),
}


@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("wrong_token", [False, True], ids=["", "wrong-token"])
def test_an_address_with_the_same_response_for_every_path_is_not_usable(
    name: str, wrong_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of(SameEverywhere(*EVERYWHERE[name]), monkeypatch, wrong_token=wrong_token, **READ_ONLY)
    assert not report.usable
    is_decided = report["address"].verdict is CONTRADICTS or report["token"].verdict is CONTRADICTS
    assert is_decided, str(report)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_an_upload_does_not_make_it_usable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(SameEverywhere(*EVERYWHERE[name]), monkeypatch, wait=1)
    assert not report.usable


def test_a_service_with_one_response_for_everything_missing_is_usable_once_an_upload_proves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Uniform(Storage):
        def refused(self, what: str, subject: str) -> Reply:
            return Reply(401 if what == "token" else 404, {"message": "Not found"})

    report = report_of(Uniform(), monkeypatch, **READ_ONLY)
    assert not report.usable
    assert "--upload URL" in report["address"].meaning
    report = report_of(Uniform(), monkeypatch)
    assert verdicts(report) == {"wrong path": CONTRADICTS, "certificate": NOT_TRIED}
    assert report.usable


@pytest.mark.parametrize("status", [429, 503])
def test_a_failure_at_the_wrong_path_proves_nothing(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(SameEverywhere):
        def respond(self, method: str, target: str, given: dict[str, str], headers: Any) -> Reply:
            reply = super().respond(method, target, given, headers)
            return Reply(status, {"message": "Busy"}, {"Retry-After": "0"}) if len(self.paths) == 3 else reply

    service = Busy(404, {"message": "Not found"})
    report = report_of(service, monkeypatch, wrong_token=False, **READ_ONLY)
    assert ["airflow-connection-test?" in path for path in service.paths] == [False, False, True, True]
    assert report["wrong path"].seen == "HTTP 404: Not found"
    assert not report.usable


class SuccessIsFalse(Storage):
    """Reports failures in a field of its own, with HTTP 200: of an upload, too."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(200, {"success": False, "message": f"no {what}"})

    def queued(self, number: int, file_id: str) -> Reply:
        return self.refused("space", "")

    def deleted(self, folder_id: str) -> Reply:
        return self.refused("permission", folder_id)


def test_a_failure_with_http_200_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(SuccessIsFalse(), monkeypatch, requests=0)
    for name in ("upload", "deletion"):
        assert report[name].seen.startswith("HTTP 200, but the service reports an error: no ")
    assert report["upload"].verdict is CONTRADICTS
    assert report["file id"].meaning == "not reached: see the rows above"
    assert not report.usable


@pytest.mark.parametrize("body", [{"state": "denied"}, {"": "denied: no such thing"}, {"": ""}])
def test_a_service_whose_errors_are_not_recognized_is_told_first_of_all(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(SameEverywhere(200, body), monkeypatch, wrong_token=False, **READ_ONLY)
    first = (
        "This service's errors are not recognized: a rejected upload or deletion will count as success. No setting changes that"
    )
    assert " ".join(str(report).split()).startswith(first)
    assert not report.usable
    assert report.to_dict()["errors_are_recognized"] is False


@pytest.mark.parametrize("body", [{"ok": False}, {"error": "no"}, {"code": 404}])
def test_a_service_whose_errors_are_recognized_is_not_told_so(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(SameEverywhere(200, body), monkeypatch, wrong_token=False, **READ_ONLY)
    assert report.errors_are_recognized
    assert "not recognized" not in str(report)


@pytest.mark.parametrize("body", [{"message": "queued"}, "", "OK", {"data": {"url": "http://127.0.0.1:1/queue/17"}}])
def test_an_upload_without_an_id_is_one_that_no_task_can_wait_for(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoId(Storage):
        def queued(self, number: int, file_id: str) -> Reply:
            return Reply(200, body)

    report = report_of(NoId(), monkeypatch)
    expected = dict.fromkeys(
        ["download token", "availability", "expiry", "download URL", "content", "ranges", "certificate"], NOT_TRIED
    )
    assert verdicts(report) == expected | {"file id": CONTRADICTS}
    assert "must get its id from elsewhere" in report["file id"].meaning
    assert not report.usable


class Never(Storage):
    polls = 1_000

    def queued(self, number: int, file_id: str) -> Reply:
        return Reply(200, {"queueId": "q1", "file": {"id": file_id}})


def test_a_file_that_never_arrives_ends_the_wait_with_the_ids_that_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(Never(), monkeypatch, wait=1)
    assert report["availability"].verdict is CONTRADICTS
    assert report["availability"].seen == "no link within 1 s; last response: HTTP 404: Wrong file: f1a"
    assert report["availability"].meaning.endswith("use --wait SECONDS. Ids tried: 'f1a' at file.id, 'q1' at queueId.")
    not_reached = ["file id", "download token", "expiry", "download URL", "content", "ranges"]
    assert {report[name].meaning for name in not_reached} == {"not reached: see the rows above"}
    assert report["deletion"].verdict is AS_ASSUMED
    assert not report.usable


class ThereAtOnce(Storage):
    """Shows a maintenance page first, and then creates the link that it would have created at once."""

    polls = 0

    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        return Reply(200, services.MAINTENANCE) if file and file.polls == 1 else super().link(file_id, file)


def test_a_maintenance_page_does_not_prove_that_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(ThereAtOnce(), monkeypatch)
    assert report["availability"].verdict is NOT_TRIED
    assert report.usable


class Conflict(Storage):
    """Refuses links to queued files in a way that waits do not take for "not yet"."""

    def link(self, file_id: str, file: StoredFile | None) -> Reply:
        return Reply(409, {"message": "In the queue"}) if file and file.polls <= self.polls else super().link(file_id, file)


def test_a_refusal_that_waits_do_not_accept_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(Conflict(), monkeypatch)
    assert verdicts(report) == {"availability": CONTRADICTS, "certificate": NOT_TRIED}
    assert "before: HTTP 409: In the queue" in report["availability"].seen
    assert "Waits tolerate that only for a short time" in report["availability"].meaning
    assert not report.usable


@pytest.mark.parametrize(("headers", "seen"), [({"Retry-After": "7"}, "Retry-After 7 s"), ({}, "no Retry-After")])
def test_a_rate_limit_is_reported_with_its_pause(headers: dict[str, str], seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Limited(Storage):
        def limited(self) -> Reply:
            return Reply(429, {"message": "Slow down"}, headers)

    service = Limited()
    report = report_of(service, monkeypatch)
    assert report["rate limit"].verdict is AS_ASSUMED
    assert report["rate limit"].seen == f"request 6: HTTP 429: Slow down, {seen}"
    assert service.paths[-6:] == [CREATE_DOWNLOAD_LINK.path] * 6


def test_a_refused_deletion_deletes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Storage()
    report = report_of(service, monkeypatch, delete_folder="none-such")
    assert (report["deletion"].verdict, report["missing folder"].verdict) == (NOT_TRIED, AS_ASSUMED)
    assert not report.usable
    assert service.folders == {FOLDER}
    assert [name for name, _ in service.effects].count("delete") == 1


def test_another_file_than_the_source_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Another(Storage):
        def download(self, file: StoredFile) -> Reply:
            return Reply(200, b"another file", {"ETag": '"1"'})

    report = report_of(Another(), monkeypatch)
    assert report["content"].verdict is CONTRADICTS
    assert report["content"].seen == f"12 bytes; the source has {len(services.SOURCE)} and another SHA-256"
    assert not report.usable


class TokenIsMissing(Storage):
    """Says in words that a token is wrong, with the status of a missing file."""

    def refused(self, what: str, subject: str) -> Reply:
        return Reply(404, {"message": f"Unknown {what}"})


@pytest.mark.parametrize(
    ("service", "extra"), [(TokenIsMissing, {}), (services.ErrorEnvelopes, {"not_found_pattern": "not"})], ids=["404", "pattern"]
)
def test_a_wrong_token_that_tasks_take_for_a_missing_file_stops_them(
    service: type[Storage], extra: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with services.running(service()) as running:
        connect(monkeypatch, running.url, **extra)
        report = examine(running, **READ_ONLY)
    assert report["token"].verdict is AS_ASSUMED
    assert report["wrong token"].verdict is CONTRADICTS
    assert "ignore_missing may hide it" in report["wrong token"].meaning
    assert not report.usable


def test_a_token_that_looks_like_a_wrong_one_is_not_reported_as_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Storage):
        def refused(self, what: str, subject: str) -> Reply:
            return Reply(404, {"message": "No route" if what == "path" else "Not found"})

    report = report_of(Silent(), monkeypatch, **READ_ONLY)
    assert report["token"].verdict is NOT_TRIED
    assert report["token"].meaning.endswith("run again with --upload URL")
    assert not report.usable


def test_a_wrong_token_that_meets_a_limit_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Limited(Storage):
        def refused(self, what: str, subject: str) -> Reply:
            return self.limited() if what == "token" else super().refused(what, subject)

    report = report_of(Limited(), monkeypatch, **READ_ONLY)
    assert report["wrong token"].verdict is NOT_TRIED
    assert "about something else: HTTP 429: Slow down" in report["wrong token"].meaning
    assert report["token"].verdict is AS_ASSUMED


@pytest.mark.parametrize(
    ("service", "stale", "proposed"),
    [
        (
            services.Nested,
            {"file_id_path": "result.id", "token_path": "result.key", "timeout": 20},
            {"file_id_path": "result.items.0.fileId", "token_path": "result.ticket", "timeout": 20},
        ),
        (
            services.UrlsWithoutToken,
            {"not_found_pattern": "gone", "file_id_path": "data.id", "token_path": "data.download_url"},
            {"not_found_pattern": "gone|Folder not found", "file_id_path": "data.id", "token_path": "data.download_url"},
        ),
    ],
    ids=["places", "pattern"],
)
def test_extras_that_no_longer_fit_are_replaced_and_the_others_kept(
    service: type[Storage], stale: dict[str, Any], proposed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with services.running(service()) as running:
        connect(monkeypatch, running.url, **stale)
        assert examine(running).extras == proposed


@pytest.mark.parametrize(
    ("message", "wrong_token", "meaning"),
    [
        ("No such file, or permission denied", False, "check the connection's password"),
        ("17", False, "is not clear"),
        ("Not possible", True, "A wrong token gets the same response"),
    ],
    ids=["may-be-about-the-token", "no-words", "the-same-for-a-wrong-token"],
)
def test_a_message_that_may_mean_something_else_becomes_no_pattern(
    message: str, wrong_token: bool, meaning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unclear(Storage):
        def refused(self, what: str, subject: str) -> Reply:
            return Reply(404, "") if what == "path" else Reply(200, {"status": "error", "message": message})

    report = report_of(Unclear(), monkeypatch, **READ_ONLY | {"wrong_token": wrong_token})
    assert report["not found"].verdict is NEEDS
    assert meaning in report["not found"].meaning
    assert report.extras == {}
    assert not report.usable


@pytest.mark.parametrize("wrong_token", [False, True])
def test_a_refused_token_of_a_service_with_envelopes_is_named_and_becomes_no_pattern(
    wrong_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with services.running(services.ErrorEnvelopes()) as service:
        connect(monkeypatch, service.url, token="another-token")
        report = examine(service, upload=None, delete_folder=None, requests=0, wrong_token=wrong_token)
    assert (report["token"].verdict, report.extras, report.usable) == (CONTRADICTS, {}, False)
    assert "password" in report["token"].meaning


def test_a_wrong_prefix_of_a_service_with_envelopes_is_named_and_becomes_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    with services.running(services.ErrorEnvelopes()) as service:
        connect(monkeypatch, f"{service.url}/api")
        report = examine(service, upload=None, delete_folder=None, requests=0)
    assert (report["address"].verdict, report.extras, report.usable) == (CONTRADICTS, {}, False)
    assert "base URL" in report["address"].meaning
    assert "base URL" in report["not found"].meaning


def test_a_folder_that_was_missing_from_the_start_shows_how_that_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with services.running(services.ErrorEnvelopes()) as service:
        connect(monkeypatch, service.url)
        report = examine(service, upload=None, delete_folder="none-such", requests=0)
    assert (report["deletion"].verdict, report["missing folder"].verdict) == (NOT_TRIED, NEEDS)
    assert "No folder '.*' in your account" in report.extras["not_found_pattern"]


def test_a_missing_folder_that_no_setting_covers_fails_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(Storage):
        def refused(self, what: str, subject: str) -> Reply:
            return Reply(400, {"message": "Bad id"}) if what == "folder" else super().refused(what, subject)

    report = report_of(Strict(), monkeypatch)
    assert verdicts(report) == {"missing folder": CONTRADICTS, "certificate": NOT_TRIED}
    assert "ignore_missing=True does not accept this" in report["missing folder"].meaning
    assert not report.usable


def test_one_message_for_files_and_folders_becomes_one_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(services.ErrorEnvelopes):
        def refused(self, what: str, subject: str) -> Reply:
            return (
                Reply(200, {"status": "error", "message": "No such thing"})
                if what.startswith("f")
                else super().refused(what, subject)
            )

    assert report_of(Same(), monkeypatch).extras == {"not_found_pattern": "No such thing"}
