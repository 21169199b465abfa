"""The doctor's verdict is right on services that differ, and with what it proposes the README's pipeline runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_cloudstore.doctor import checks, diagnose
from airflow_provider_cloudstore.doctor.report import WIDTH, Report
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.dag_runs import run_dag
from tests.doc_blocks import code_of, dag_of
from tests.wire.doctor.services import CAN, CAN_OTHERWISE, CANNOT, FOLDER, LINK_TOKEN, SERVICES, TOKEN, Server, connect, running

FIRST_DAY = datetime(2026, 3, 11, tzinfo=UTC)
SOURCE = "https://me:c4n4ry-pass@example.com/report.csv?sig=c4n4ry-sig-value"
USABLE = [name for name, service in SERVICES.items() if service.verdict in (CAN, CAN_OTHERWISE)]


@pytest.fixture(params=SERVICES)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(checks, "_PAUSE", 0.02)
    with running(SERVICES[request.param], monkeypatch) as server:
        yield server


def examine(server: Server) -> Report:
    """Diagnose with everything that the doctor can try."""
    server.folders.add(FOLDER)
    server.effects.clear()
    return diagnose(wrong_token=True, upload=SOURCE, delete_folder=FOLDER, wait=3)


def paste(server: Server, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the connection with what a first run proposes, and with what a human chooses."""
    chosen = {name: text.replace("{url}", server.url) for name, text in server.service.chosen.items()}
    connect(monkeypatch, server.url, **report.extras, **chosen)


def test_the_verdict_is_right_and_a_second_run_with_the_extras_pasted_confirms_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = server.service
    report = examine(server)
    assert report.verdict.startswith(expected.verdict), report
    assert (report.extras, report.candidates) == (expected.extras, expected.candidates), report
    assert expected.says in str(report)
    assert report.usable is (expected.verdict == CAN)
    if expected.verdict == CAN_OTHERWISE:
        paste(server, report, monkeypatch)
        again = examine(server)
        assert again.verdict == CAN, again
        assert again.not_tried == []


def test_nothing_secret_is_printed_and_no_line_is_longer_than_a_terminal(
    server: Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    report = examine(server)
    printed = "".join([str(report), json.dumps(report.to_dict()), repr(report), caplog.text, *capfd.readouterr()])
    assert not [secret for secret in (TOKEN, LINK_TOKEN, "c4n4ry") if secret in printed]
    assert all(len(line) <= WIDTH for line in str(report).splitlines() if not line.startswith("{"))


@pytest.mark.slow  # make test-doctor
@pytest.mark.parametrize("server", USABLE, indirect=True)
def test_with_the_extras_pasted_the_readmes_pipeline_runs(
    server: Server, airflow_db: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    paste(server, examine(server), monkeypatch)
    server.folders.add(FOLDER)
    server.effects.clear()
    code = code_of("README.md-0").replace("wait_for_file=True", "wait_for_file=True, poll_interval=0.05")
    usable = [SERVICES[name] for name in USABLE]
    day = FIRST_DAY + timedelta(days=usable.index(server.service))  # Airflow 2.11 cannot run one date twice
    run = run_dag(dag_of("README.md-0", code), logical_date=day)
    assert run.state == "success", str(run)
    assert server.effects == ["upload", "link", "delete"]
    assert run.values["clean_up"]["existed"] is True
    assert FOLDER not in server.folders


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        ("one answer for all", f"{CANNOT}a wrong base URL would look like a missing file"),
        ("a message without the id", f"{CANNOT}a refused token may look like a missing file"),
        ("unrecognized", "This service's errors are not recognized"),
    ],
    indirect=["server"],
)
@pytest.mark.usefixtures("server")
def test_without_flags_it_does_not_say_that_tasks_can_rely_on_what_it_cannot_tell_apart(verdict: str) -> None:
    assert diagnose().verdict.startswith(verdict)


@pytest.mark.parametrize("refused", [{"password": "refused-token"}, {"host": "http://127.0.0.1:9"}])
def test_a_refused_token_and_an_address_without_a_service_end_the_checks(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, refused: dict[str, str]
) -> None:
    connection = json.loads(emulator.connection) | refused
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    report = diagnose(upload=emulator.serve(b"x"))
    assert report.verdict.startswith(CANNOT)
    assert emulator.state()["effects"] == {}
    assert [step.name for step in report.steps] == ["missing file"]
