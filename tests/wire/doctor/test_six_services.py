"""The doctor proposes what six services need, and with its extras the README's DAG succeeds on each."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.dag_runs import run_dag
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS
from tests.doc_blocks import code_of, dag_of
from tests.wire.doctor import services
from tests.wire.doctor.services import AS_ASSUMED, CONTRADICTS, FOLDER, NEEDS, NOT_TRIED, SOURCE, TOKEN, Storage, connect, examine

FIRST_DAY = datetime(2026, 3, 11, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A service, and what the doctor reports of it.

    :param rows: the rows that are not as assumed, and the words that each must contain, seen or meant.
    :param extras: what it proposes.
    :param by_hand: what a human must set.
    :param differs: the rows that are not as assumed with these extras.
    :param usable: whether tasks can rely on it with these extras.
    """

    rows: dict[str, tuple[Any, str]]
    extras: dict[str, str] = field(default_factory=dict)
    by_hand: dict[str, str] = field(default_factory=dict)
    differs: frozenset[str] = frozenset()
    usable: bool = True


NO_URL = {
    "download URL": (NEEDS, "Set extra 'download_url'"),
    "content": (NOT_TRIED, "not reached: see the rows above"),
    "ranges": (NOT_TRIED, "not reached: see the rows above"),
}
CASES: dict[type[Storage], Case] = {
    services.ErrorEnvelopes: Case(
        {
            "not found": (NEEDS, r"The file airflow-connection-test does not exist (code 17)."),
            "wrong token": (CONTRADICTS, "The access token is not valid"),
            "missing folder": (NEEDS, "No folder 'old-reports' in your account."),
            "rate limit": (CONTRADICTS, "request 6: HTTP 503: Busy"),
        },
        {"not_found_pattern": r"The file .* does not exist \(code .*\)\.|No folder '.*' in your account\."},
        differs=frozenset({"wrong token", "rate limit"}),
        usable=False,
    ),
    services.Nested: Case(
        {
            "file id": (NEEDS, "Set extra 'file_id_path' to 'result.items.0.fileId'. Other candidates: result.items.0.queueId."),
            "download token": (NEEDS, "Set extra 'token_path' to 'result.ticket'."),
            **NO_URL,
        },
        {"file_id_path": "result.items.0.fileId", "token_path": "result.ticket"},
        {"download_url": "/get/{token}"},
    ),
    services.BareText: Case({**NO_URL}, {}, {"download_url": "/get/{token}"}, frozenset({"ranges"})),
    services.UrlsWithoutToken: Case(
        {
            "file id": (NEEDS, "'1048' at data.id"),
            "download token": (NEEDS, "at data.download_url"),
            "missing folder": (NEEDS, "Folder not found"),
        },
        {"file_id_path": "data.id", "token_path": "data.download_url", "not_found_pattern": "Folder not found"},
    ),
    services.Maintained: Case(
        {"file id": (NEEDS, "'f1a' at file.uuid"), "download token": (NEEDS, "at link.href")},
        {"file_id_path": "file.uuid", "token_path": "link.href"},
    ),
    services.TooEarly: Case(
        {
            "file id": (NEEDS, "'f1a' at data.fileId"),
            "availability": (
                CONTRADICTS,
                "the download host refused it at first (HTTP 404: the download host rejected the link)",
            ),
        },
        {"file_id_path": "data.fileId"},
        differs=frozenset({"availability"}),
        usable=False,
    ),
}


@pytest.fixture(params=CASES, ids=lambda kind: kind.__name__)
def service(request: pytest.FixtureRequest) -> Iterator[Storage]:
    with services.running(request.param()) as service:
        yield service


@pytest.fixture
def case(service: Storage) -> Case:
    return CASES[type(service)]


def configured(case: Case, service: Storage, proposed: dict[str, Any]) -> dict[str, Any]:
    return proposed | {name: f"{service.url}{path}" for name, path in case.by_hand.items()}


def test_the_report_says_what_differs_and_what_to_set(
    case: Case,
    service: Storage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    connect(monkeypatch, service.url)
    report = examine(service)
    expected = {name: verdict for name, (verdict, _) in case.rows.items()} | {"certificate": NOT_TRIED}
    assert services.verdicts(report) == expected
    for name, (_, words) in case.rows.items():
        assert words in f"{report[name].seen}\n{report[name].meaning}", name
    assert report.extras == case.extras
    assert not report.usable
    printed = "".join([str(report), json.dumps(report.to_dict()), repr(report), caplog.text, *capfd.readouterr()])
    assert "Waiting up to 20 s" in printed
    assert not any(secret in printed for secret in (TOKEN, "token-for-"))


def test_with_the_extras_pasted_nothing_needs_a_setting(case: Case, service: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, service.url, **configured(case, service, case.extras))
    report = examine(service)
    assert services.verdicts(report) == dict.fromkeys(case.differs, CONTRADICTS) | {"certificate": NOT_TRIED}
    assert report.usable is case.usable
    assert report["content"].seen == f"{len(SOURCE)} bytes with the source's SHA-256"
    assert report.extras.keys() <= EXTRA_KEYS
    assert ("delete", FOLDER) in service.effects


RUNS = [(kind, True) for kind in CASES] + [(kind, False) for kind in CASES if "not_found_pattern" in CASES[kind].extras]


@pytest.mark.slow  # make test-doctor
@pytest.mark.parametrize(
    ("service", "exists"),
    RUNS,
    indirect=["service"],
    ids=[f"{kind.__name__}-{'' if there else 'no-'}folder" for kind, there in RUNS],
)
def test_with_the_extras_pasted_the_readmes_dag_succeeds(
    case: Case, service: Storage, exists: bool, airflow_db: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, service.url)
    proposed = examine(service, requests=0).extras
    connect(monkeypatch, service.url, **configured(case, service, proposed))
    day = FIRST_DAY + timedelta(days=RUNS.index((type(service), exists)))  # Airflow 2.11 cannot run one date twice
    folder = "old-reports"
    service.folders = {folder} if exists else set()
    service.effects.clear()
    code = code_of("README.md-0").replace("wait_for_file=True", "wait_for_file=True, poll_interval=0.05")
    run = run_dag(dag_of("README.md-0", code), logical_date=day)
    assert run.state == "success", str(run)
    (_, source), (_, token), deletion = service.effects
    assert source == f"{service.url}/_emulator/sources/report.csv"
    assert run.values["link"].endswith(token)
    assert deletion == ("delete", folder)
    assert run.values["clean_up"]["existed"] is exists
    assert service.folders == set()


def test_a_file_that_is_there_at_once_is_no_proof_of_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Immediate(Storage):
        polls = 0

    with services.running(Immediate()) as service:
        connect(monkeypatch, service.url)
        report = examine(service)
    assert services.verdicts(report) == {"certificate": NOT_TRIED, "availability": NOT_TRIED}
    assert "upload a larger file" in report["availability"].meaning
    assert report.usable
    assert report["content"].verdict is AS_ASSUMED


def test_a_pattern_for_files_is_no_proof_for_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    with services.running(services.ErrorEnvelopes()) as service:
        connect(monkeypatch, service.url)
        report = examine(service, delete_folder=None)
    assert "ignore_missing=True fails" in report["missing folder"].meaning
