from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import requests_mock

from airflow_provider_cloudstore.doctor import recording
from airflow_provider_cloudstore.doctor.judge import Answer, Record, judge
from airflow_provider_cloudstore.doctor.recording import examine
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, Operation, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import response, settings
from tests.unit.doctor.services import SERVICES, start

SETTINGS = settings()
OWN = replace(SETTINGS, not_found_pattern=re.compile("folder"), token_refused_pattern=re.compile("ran out"))
FILE = CreateDownloadLink(SETTINGS, "no-such-file")
OPERATIONS: dict[str, Operation[Any]] = {
    "missing file": FILE,
    "wrong path": FILE,
    "wrong token": FILE,
    "upload": UploadFromUrl(SETTINGS, "https://example.com/a.csv"),
    "link": CreateDownloadLink(SETTINGS, "f1a"),
}
MISSING = (404, {"message": "no file no-such-file"})
SAID = (200, {"ok": False, "error": "no file no-such-file"})
LINK = (200, {"token": "t-1"})
VAGUE = (200, {"ok": False, "error": "no access"})
WRONG = (200, {"ok": False, "error": "Error 7"})
UNCLEAR = (200, {"note": "nope"})
LINKED = (200, {"status": "fine", "token": "t-1"})
READ = {"missing file": SAID, "wrong path": (404, b"")}
QUEUED = READ | {"upload": (200, {"file_id": "f1a"})}
FINE = {"told": "all is fine", "status": "fine"}
WORDS = {"status": "ok1", "done": False, "next": None, "size": 1234, "version": "1.5", "at": "2029-01-01", "key": "later"}

Replies = dict[str, tuple[int, Any]]


def record_of(replies: Replies, own: Settings = SETTINGS, **fields: Any) -> Record:
    """What was answered, in that order."""
    answers = [Answer(name, OPERATIONS[name], own, response(*reply)) for name, reply in replies.items()]
    return Record("files", own, answers=answers, **fields)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (Record("files", "it is nowhere"), "it cannot be read: it is nowhere"),
        (record_of({"missing file": (401, {"message": "who?"})}), "HTTP 401: the service refused the access token"),
        (record_of({"missing file": MISSING, "wrong path": MISSING}), "a wrong base URL would look like a missing file"),
    ],
)
def test_each_problem_follows_from_what_was_answered(record: Record, problem: str) -> None:
    report = judge(record)
    (found,) = report.problems
    assert found.startswith(problem)
    assert not report.usable


@pytest.mark.parametrize(
    ("record", "extras", "candidates"),
    [
        (record_of(READ | {"missing file": VAGUE, "wrong token": (401, b"")}), {}, {"not_found_pattern": ["no access"]}),
        (record_of(READ | {"missing file": WRONG, "wrong token": (401, b"")}), {}, {"not_found_pattern": ["Error 7"]}),
        (
            record_of(
                {"missing file": SAID, "wrong token": (200, b""), "upload": (200, FINE | {"file_id": "f1a"}), "link": LINKED}
            ),
            {"success_when": "status=fine"},
            {},
        ),
        (
            record_of(READ | {"wrong token": VAGUE}, own=OWN),
            {"not_found_pattern": "folder|no file .*", "token_refused_pattern": "ran out|no access"},
            {},
        ),
        (
            record_of({"missing file": UNCLEAR, "upload": (200, FINE | {"id": "f1a"}), "link": (200, FINE | {"key": "t-1"})}),
            {"success_when": "status=fine", "file_id_path": "id", "token_path": "key"},
            {},
        ),
        (
            record_of(QUEUED | {"upload": (200, {"id": 7, "queue": 8}), "link": (200, {"one": "t-1", "two": "t-2"})}),
            {"not_found_pattern": "no file .*"},
            {"file_id_path": ["id", "queue"], "token_path": ["one", "two"]},
        ),
        (record_of(QUEUED | {"link": (200, WORDS)}), {"not_found_pattern": "no file .*"}, {}),
    ],
)
def test_a_setting_is_proposed_if_nothing_else_is_possible_and_otherwise_its_candidates_are_listed(
    record: Record, extras: dict[str, str], candidates: dict[str, list[str]]
) -> None:
    report = judge(record)
    assert (report.extras, report.candidates) == (extras, candidates)


def test_of_the_requests_for_a_link_the_last_is_shown() -> None:
    record = record_of({"link": LINK})
    record.answers = [*record_of({"link": SAID}).answers, *record.answers]
    assert [step.seen for step in judge(record).steps] == ["HTTP 200, no sign of an error"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_record_is_judged_without_the_service_the_same_at_each_look_and_also_if_it_ends_early(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_PAUSE", 0)
    wait = 10 * SERVICES[name].polls
    with requests_mock.Mocker() as mocker:
        start(SERVICES[name], mocker, monkeypatch)
        record = examine("cloudstore_default", wrong_token=True, upload="https://example.com/a", wait=wait)
        sent = mocker.call_count
        report = judge(record)
        assert judge(record) == report
        tried = {step.name for step in report.steps}
        for count in range(len(record.answers)):
            begun = replace(record, answers=record.answers[:count], download=None, interrupted=True)
            early = judge(begun)
            assert early.problems[-1] == "the doctor was interrupted; the report has what was seen so far"
            assert {step.name for step in early.steps} == {answer.name for answer in begun.answers} <= tried
    assert mocker.call_count == sent


def test_of_a_links_answer_only_what_may_be_a_secret_is_masked() -> None:
    body = {"_status": "success", "code": 0, "key": "t-1a2b3c", "token": "s3cr3t-value", "until": "2029-01-01", "size": 9}
    report = judge(record_of(QUEUED | {"link": (200, body)}))
    assert dict(report.steps[-1].leaves) == {**{name: str(value) for name, value in body.items()}, "key": "***", "token": "***"}


def test_the_words_of_an_expired_token_are_not_taken_for_those_of_a_missing_file() -> None:
    expired = (200, {"success": 0, "message": "Your ticket ran out"})
    wrong = (200, {"success": 0, "message": "This ticket is not ours"})
    said: Replies = {"missing file": expired, "wrong path": expired, "wrong token": wrong}
    read, tried = judge(record_of(said)), judge(record_of(said | {"upload": expired}, uploads=True))
    for report in (read, tried):
        assert (report.extras, report.candidates) == ({"token_refused_pattern": "This ticket is not ours"}, {})
    known = (200, {"success": 0, "message": "Invalid access token"})  # a phrase that is understood without a setting
    assert judge(record_of(said | {"wrong token": known})).extras == {}
    naming = (200, {"success": 0, "message": "access to no-such-file ended"})
    refused = (200, {"success": 0, "message": "access to https://example.com/a.csv ended"})
    assert judge(record_of({"missing file": naming, "wrong path": (404, b""), "upload": refused}, uploads=True)).extras == {}
    assert read.problems[0].startswith("a refused or expired token, or a wrong base URL, may look like a missing file")
    assert "the token may be refused or have expired: set a valid one" in tried.problems[0]
