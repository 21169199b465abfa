"""The doctor's verdict is right on services that differ, and tasks work with what it proposes and a human chooses."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import requests_mock

from airflow_provider_cloudstore.doctor import diagnose, recording
from airflow_provider_cloudstore.doctor.report import WIDTH, Report
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.sensors.cloudstore import FileAvailableSensor
from tests.support import connect
from tests.unit.doctor.services import CAN, CANNOT, LINK_TOKEN, SERVICES, TOKEN, start

SOURCE = "https://me:c4n4ry-pass@example.com/report.csv?sig=c4n4ry-sig-value"


@pytest.mark.parametrize("name", SERVICES)
def test_the_verdict_is_right_nothing_secret_is_printed_and_tasks_work_with_the_extras_pasted_run_after_run(
    name: str,
    requests_mock: requests_mock.Mocker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(recording, "_PAUSE", 0)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "requests_mock")  # it logs whole URLs
    expected = SERVICES[name]
    reports: list[Report] = []
    extras, candidates = dict[str, str](), dict[str, list[str]]()
    can_work = expected.chosen or not expected.verdict.startswith(CANNOT)
    while not reports or (can_work and not reports[-1].usable and len(reports) < 4):
        start(expected, requests_mock, monkeypatch, **(extras | expected.chosen if reports else {}))
        reports.append(diagnose(wrong_token=True, upload=SOURCE, wait=10 * expected.polls))
        extras |= reports[-1].extras
        candidates |= reports[-1].candidates
    text = str(reports[0])
    assert " ".join(text.split()).startswith(expected.verdict), text
    assert expected.says in text
    assert reports[0].usable is (expected.verdict == CAN)
    assert (extras, candidates) == (expected.extras, expected.candidates), text
    data = json.dumps([report.to_dict() for report in reports])
    printed = "".join([*map(str, reports), data, repr(reports), caplog.text, *capfd.readouterr()])
    assert not [secret for secret in (TOKEN, LINK_TOKEN, "c4n4ry") if secret in printed]
    assert all(len(line) <= WIDTH for line in text.splitlines() if not line.startswith("{"))
    assert all(len(value) <= 200 for report in reports for step in report.steps for _, value in step.leaves)
    if can_work:
        assert (reports[-1].verdict, reports[-1].not_tried) == (CAN, [])
        start(expected, requests_mock, monkeypatch, **(extras | expected.chosen))
        work()


def work() -> None:
    """Upload a file, wait for it, share it, and delete a folder, as tasks do."""
    with CloudStoreHook() as hook:
        file_id = hook.upload_from_url(SOURCE).file_id
        FileAvailableSensor(task_id="wait", file_id=file_id, poke_interval=0.001).execute({})
        assert LINK_TOKEN in hook.create_download_link(file_id).token
        assert hook.delete_folder("old-reports").existed


@pytest.mark.parametrize(
    ("name", "flags", "problem"),
    [
        ("one answer for all", {}, "a refused or expired token, or a wrong base URL, may look like a missing file"),
        ("one answer for all", {"upload": SOURCE}, "uploads fail: HTTP 200, but the service reports an error: no access"),
        (
            "a message without the id",
            {},
            "a refused or expired token may look like a missing file: prove the connection with --upload",
        ),
        ("unrecognized", {}, "the service's errors are not recognized"),
    ],
)
def test_with_fewer_flags_it_neither_trusts_nor_proposes_what_it_cannot_tell_apart(
    name: str, flags: dict[str, Any], problem: str, requests_mock: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(SERVICES[name], requests_mock, monkeypatch, color="red")
    report = diagnose(**flags)
    text = " ".join(str(report).split())
    assert problem in text
    assert "- The connection has the unknown extra 'color'." in text
    assert (report.usable, report.extras) == (False, {})


@pytest.mark.parametrize("refused", [{"password": "refused-token"}, {"host": "http://127.0.0.1:9"}])
def test_a_refused_token_and_an_address_without_a_service_end_the_checks(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, refused: dict[str, str]
) -> None:
    connect(monkeypatch, **json.loads(emulator.connection) | refused)
    report = diagnose(upload=emulator.serve(b"x"))
    assert report.verdict.startswith(CANNOT)
    assert emulator.state()["effects"] == {}
    assert [step.name for step in report.steps] == ["missing file"]
