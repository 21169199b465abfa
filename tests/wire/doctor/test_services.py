"""The doctor's verdict is right on services that differ, and with what it proposes the README's pipeline runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_cloudstore.doctor import checks, diagnose
from airflow_provider_cloudstore.doctor.report import WIDTH
from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.doc_blocks import code_of, dag_of
from tests.wire.doctor import services
from tests.wire.doctor.services import FOLDER, TOKEN, Storage, connect, examine

FIRST_DAY = datetime(2026, 3, 11, tzinfo=UTC)
CAN, CANNOT = (
    "Tasks can rely on connection 'cloudstore_default'",
    "Tasks cannot rely on connection 'cloudstore_default', because ",
)


@dataclass(frozen=True)
class Case:
    """A service, and what the doctor says of it.

    :param verdict: how the first line begins.
    :param extras: what it proposes.
    :param candidates: what it leaves to a human.
    :param chosen: what the human sets; ``{url}`` stands for the service.
    :param says: what else the report says.
    """

    verdict: str
    extras: dict[str, str] = field(default_factory=dict)
    candidates: dict[str, list[str]] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    says: str = ""


CASES: dict[type[Storage], Case] = {
    Storage: Case(f"{CAN}, as far as tried."),
    services.StatusEnvelopes: Case(
        f"{CAN} with other settings",
        {"not_found_pattern": r"The file .* does not exist \(code 17\)\.|No folder '.*' in your account\."},
        says="status: error",
    ),
    services.OkEnvelopes: Case(
        f"{CAN} with other settings",
        {"file_id_path": "result.file.uid", "not_found_pattern": "no file .*|no folder .*"},
    ),
    services.NotReady: Case(
        f"{CAN} with other settings",
        {"file_id_path": "result.file.uid", "not_found_pattern": "no file .*|not ready yet|no folder .*"},
    ),
    services.SuccessEnvelopes: Case(
        f"{CAN} with other settings",
        {"token_path": "link.href", "not_found_pattern": "There is no file .*|There is no folder .*"},
    ),
    services.ErrorStrings: Case(f"{CAN} with other settings", {"file_id_path": "data.id"}, says="data.id: 1048"),
    services.Nested: Case(
        f"{CAN} with other settings",
        {"file_id_path": "result.items.0.fileId"},
        {"token_path": ["result.ticket"]},
        {"token_path": "result.ticket", "download_url": "{url}/get/{{token}}"},
        says="Set extra 'token_path' by hand; it could be: result.ticket.",
    ),
    services.Ambiguous: Case(
        f"{CAN} with other settings",
        candidates={"file_id_path": ["upload.id", "upload.title"]},
        chosen={"file_id_path": "upload.id"},
        says="Set extra 'file_id_path' by hand; it could be: upload.id, upload.title.",
    ),
    services.BareText: Case(f"{CAN}, as far as tried.", says="Downloads need extra 'download_url'"),
    services.TooEarly: Case(f"{CANNOT}a link was created, but no file came, so waits may end too early"),
    services.RejectsUploads: Case(
        f"{CANNOT}uploads fail: HTTP 200, but the service reports an error: quota exceeded",
        {"not_found_pattern": "no file .*|no folder .*"},
    ),
    services.LoginPage: Case(f"{CANNOT}HTTP 200 with a web page"),
    services.Maintained: Case(f"{CANNOT}HTTP 503"),
    services.Unrecognized: Case("This service's errors are not recognized", says="why: no file"),
}
USABLE = [kind for kind, case in CASES.items() if case.verdict.startswith(CAN)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_PAUSE", 0.02)


@pytest.fixture(params=CASES, ids=lambda kind: kind.__name__)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with services.running(request.param()) as running:
        connect(monkeypatch, running.url, max_attempts=1)
        yield running


def test_the_verdict_is_right_and_nothing_secret_is_printed(
    service: Storage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    case = CASES[type(service)]
    report = examine(service)
    assert report.verdict.startswith(case.verdict), report
    assert (report.extras, report.candidates) == (case.extras, case.candidates), report
    assert case.says in str(report)
    assert report.usable is (case.verdict == f"{CAN}, as far as tried.")
    printed = "".join([str(report), json.dumps(report.to_dict()), repr(report), caplog.text, *capfd.readouterr()])
    assert not any(secret in printed for secret in (TOKEN, "token-for-"))
    assert all(len(line) <= WIDTH for line in str(report).splitlines() if not line.startswith("{"))


def pasted(service: Storage, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Configure the connection with what a first run proposes, and with what a human chooses."""
    proposed = examine(service).extras
    chosen = {name: text.format(url=service.url) for name, text in CASES[type(service)].chosen.items()}
    connect(monkeypatch, service.url, **proposed, **chosen)
    return proposed


@pytest.mark.parametrize("service", USABLE, indirect=True, ids=lambda kind: kind.__name__)
def test_with_the_extras_pasted_tasks_can_rely_on_it(service: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    pasted(service, monkeypatch)
    report = examine(service)
    assert report.usable, report
    assert not {"--upload URL", "--delete-folder ID"} & {*report.not_tried}


@pytest.mark.slow  # make test-doctor
@pytest.mark.parametrize("service", USABLE, indirect=True, ids=lambda kind: kind.__name__)
def test_with_the_extras_pasted_the_readmes_pipeline_runs(
    service: Storage, airflow_db: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    pasted(service, monkeypatch)
    service.folders.add(FOLDER)
    service.effects.clear()
    code = code_of("README.md-0").replace("wait_for_file=True", "wait_for_file=True, poll_interval=0.05")
    day = FIRST_DAY + timedelta(days=USABLE.index(type(service)))  # Airflow 2.11 cannot run one date twice
    run = run_dag(dag_of("README.md-0", code), logical_date=day)
    assert run.state == "success", str(run)
    assert [name for name, _ in service.effects] == ["upload", "link", "delete"]
    assert run.values["clean_up"]["existed"] is True
    assert FOLDER not in service.folders


def test_the_emulator_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(fetch_delay=0.2) as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        report = diagnose(wrong_token=True, upload=emulator.serve(b"name\n"), delete_folder=emulator.make_folder(FOLDER))
        assert report.usable, report
        assert emulator.state()["effects"]["upload"] == emulator.state()["effects"]["delete"] == 1
        assert report.not_tried == []


@pytest.mark.parametrize("refused", [{"password": "refused-token"}, {"host": "http://127.0.0.1:9"}])
def test_a_refused_token_and_an_address_without_a_service_end_the_checks(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, refused: dict[str, str]
) -> None:
    connection = json.loads(emulator.connection) | refused | {"extra": {"max_attempts": 1}}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    report = diagnose(upload=emulator.serve(b"x"))
    assert report.verdict.startswith(CANNOT)
    assert emulator.state()["effects"] == {}
    assert [step.name for step in report.steps] == ["missing file"]
