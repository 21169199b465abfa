"""The doctor shows what came and how the declaration reads it, proposes nothing, deletes nothing and prints no secret."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from airflow_provider_cloudstore.doctor import Report, diagnose, examination
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.support import connect
from tests.unit.doctor.services import LINK_TOKEN, OWN, OWN_EXTRAS, TOKEN, Replies, connected_to

SOURCE = "https://me:c4n4ry-pass@example.com/report.csv?sig=c4n4ry-sig-value"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_PAUSE", 0)


def fields_of(report: Report, name: str) -> dict[str, tuple[str, str]]:
    """The fields of a step, by path."""
    (step,) = [one for one in report.steps if one["request"].startswith(f"{name}:")]
    return {path: (value, read_as) for path, value, read_as in step["fields"]}


def tried(replies: Replies, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any] | None = None, **flags: Any) -> Report:
    with connected_to(replies, monkeypatch, **(extra or {})):
        return diagnose(**{"wrong_token": True, "upload": SOURCE, "wait": 0, **flags})


def test_each_field_that_was_read_is_marked_and_the_outcome_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tried({}, monkeypatch)
    assert report.usable, str(report)
    assert [step["outcome"] for step in report.steps] == ["NotFoundError", "AuthenticationError", "RemoteUpload", "DownloadLink"]
    assert fields_of(report, "missing file") == {"message": ("No file airflow-connection-test", "message")}
    assert fields_of(report, "upload") == {"file_id": ("f1a", "file_id")}
    assert fields_of(report, "link") == {
        "download_token": ("***", "token"),
        "download_url": ("***", "download_url"),
        "expires_in": ("60", "expires"),
    }


def test_a_service_of_its_own_is_read_by_the_extras_that_the_doctor_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tried(OWN, monkeypatch)
    text = " ".join(str(first).split())
    assert not first.usable
    for name in OWN_EXTRAS:
        assert f"xtra '{name}'" in text, text
    assert fields_of(first, "upload") == {"rc": ("OK", ""), "payload.fileKey": ("f1a", ""), "payload.queue": ("3", "")}
    assert "link" not in text.split("upload:")[-1], "without an id there is nothing to wait for"
    second = tried(OWN, monkeypatch, OWN_EXTRAS)
    assert second.usable, str(second)
    assert fields_of(second, "wrong token") == {"rc": ("E02", ""), "why": ("session is over", "message")}
    third = tried(OWN, monkeypatch, extras=OWN_EXTRAS)
    assert third == second


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        ({"file": (200, {"token": LINK_TOKEN})}, "the service's error was read as a success; set extra 'success_when'"),
        ({"file": (200, {"ok": False, "error": "gone"})}, "missing file: ServiceError. Extra 'not_found_pattern' must match"),
        ({"file": (200, "<html>Sign in</html>")}, "missing file: InvalidResponseError. Check that the connection's host"),
        ({"file": (302, "")}, "missing file: BadRequestError. Redirects are not followed"),
        ({"token": (200, {"ok": False, "error": "no"})}, "wrong token: ServiceError. Extra 'token_refused_pattern' must match"),
        ({"link": (200, {"ticket": LINK_TOKEN})}, "link: InvalidResponseError. If the response has the token"),
        (
            {"link": (200, {"ok": False, "error": "on the way"})},
            "link: ServiceError. If this means that the file is not there",
        ),
        ({"link": (200, {"token": LINK_TOKEN})}, "link: no URL to download from; set extra 'download_url_path'"),
    ],
)
def test_what_tasks_cannot_rely_on_is_a_sentence_with_what_declares_it(
    replies: Replies, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tried(replies, monkeypatch, {"max_attempts": 1})
    assert not report.usable
    assert any(one.startswith(says) for one in report.problems), report.problems


def test_a_file_id_asks_for_its_link_and_uploads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected_to({}, monkeypatch) as answered:
        assert diagnose(file_id="f1a").usable
        assert not diagnose(file_id="f1b").usable
    assert answered == ["file", "link", "file", "file"]


@pytest.mark.parametrize("refused", [{"password": "refused"}, {"host": "http://127.0.0.1:9"}])
def test_a_refused_token_and_an_address_without_a_service_end_the_checks(
    refused: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected_to({}, monkeypatch) as answered:
        connect(monkeypatch, **{"host": "http://127.0.0.1:9", "password": "x", **refused})
        report = diagnose(upload=SOURCE)
    assert not report.usable
    assert len(report.steps) == 1
    assert "queued" not in answered


LEAKS: list[Replies] = [
    {},
    {"link": (200, {"status": "error", "token": LINK_TOKEN, "response": f"{LINK_TOKEN} has expired"})},
    {"link": (200, {"status": "error", "data": {"url": f"https://x.example/{LINK_TOKEN}"}})},
    {"link": (200, {"href": f"https://x.example/get?id=7&t={LINK_TOKEN}"})},
    {"link": (200, LINK_TOKEN)},
    {"file": (200, {"token": LINK_TOKEN})},
    {"queued": (200, {"file_id": "f1a", "of": SOURCE, "by": TOKEN, "new_token": "c4n4ry", "keys": {TOKEN: 1}})},
]


@pytest.mark.parametrize("replies", LEAKS)
def test_no_secret_is_in_the_text_the_data_or_the_log(
    replies: Replies, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_provider_cloudstore")
    report = tried(replies, monkeypatch, {"max_attempts": 1})
    ours = "".join(one.getMessage() for one in caplog.records if one.name.startswith("airflow_provider_cloudstore"))
    printed = str(report) + json.dumps(report.to_dict()) + repr(report) + ours
    assert not [secret for secret in (TOKEN, LINK_TOKEN, "c4n4ry") if secret in printed]


def test_the_text_has_80_columns_and_a_value_200_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tried({"queued": (200, {"file_id": "f1a", "much": "word " * 100, "k" * 90: 1})}, monkeypatch)
    assert max(map(len, str(report).splitlines())) <= 80
    assert len(fields_of(report, "upload")["much"][0]) == 200


def test_a_setting_of_this_run_wins_and_one_that_is_invalid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected_to(OWN, monkeypatch, **OWN_EXTRAS | {"success_when": "rc=NEVER", "color": "red"}) as answered:
        report = diagnose(extras={"success_when": '{"link": "rc=OK", "upload": "rc=OK", "delete": "rc=OK"}'})
        assert report.usable, str(report)
        assert any("unknown extra 'color'" in note for note in report.notes)
        answered.clear()
        with pytest.raises(ConfigurationError, match="success_when"):
            diagnose(extras={"success_when": "="})
    assert answered == []
    assert CloudStoreHook().settings.service.success_when, "the connection itself stays as it is"


def test_keys_are_tried_where_the_service_gives_a_token_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(service="yetishare") as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        report = diagnose(wrong_token=True, upload=emulator.serve(b"content"))
        assert report.usable, str(report)
        assert [step["outcome"] for step in report.steps] == ["NotFoundError", "AuthenticationError", "RemoteUpload"]
        assert emulator.access_token not in str(report)
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(json.loads(emulator.connection) | {"login": "0" * 64}))
        with pytest.raises(ConfigurationError, match="the first key of the account"):
            diagnose()
