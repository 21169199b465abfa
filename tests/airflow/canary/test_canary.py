"""Secrets with awkward characters pass through every operator and failure on a complete Airflow at DEBUG; no output has them.

Slow: it starts an Airflow. ``make test-airflow`` runs it on both Airflows.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.messages import Response
from tests.leaks import leaks, printed
from tests.real_airflow import RealAirflow
from tests.support import CALLS, CUT_OFF, OtherServer, error_envelope, method_of, other_server, settings, store_file

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"

ACCESS_TOKEN = "canary+access/token=%&#é"
LONGER_TOKEN = ACCESS_TOKEN + "-and-a-tail"  # begins with the shorter one
DOWNLOAD_TOKEN = "canary+download/token=%&#é"
PASSWORD = "canary+pass/word=%&#é x"
SIGNATURE = "canary+signature/=%&#é x"
SOURCE = f"ftp://user:{quote(PASSWORD, safe='')}@127.0.0.1:9/file?a=b&sig={quote(SIGNATURE, safe='')}"
ECHO_TOKEN = f"no {ACCESS_TOKEN} {quote(ACCESS_TOKEN)}"  # a service that echoes its request
ECHO = f"{ECHO_TOKEN} {SOURCE} {SIGNATURE} {PASSWORD}"  # ... to an upload
SECRETS = (ACCESS_TOKEN, LONGER_TOKEN, DOWNLOAD_TOKEN, PASSWORD, SIGNATURE)


WITH_OPERATOR = ("delete", "upload", "link")
"""The operations that the DAG performs with an operator; the others with the hook."""


def has_result(operation: str, body: bytes) -> bool:
    """Return whether a response with HTTP 200 and this body is a result of the operation."""
    kind, subject = CALLS[operation]
    call = kind(subject, settings())
    call.request()
    try:
        call.handle_outcome(Response(200, {}, body, 0.0, 0.0))
    except CloudStoreError:
        return False
    return True


def faults(echo: str) -> dict[str, dict[str, Any]]:
    """Return the fault of each service, by the service's name.

    :param echo: the service's message.
    """
    return {
        "ok": {},
        "longer": {},
        "400": {"kind": "status", "status": 400, "body": echo},
        "401": {"kind": "status", "status": 401, "body": echo},
        "403": {"kind": "status", "status": 403, "body": json.dumps({"response": echo})},
        "404": {"kind": "status", "status": 404, "body": echo},
        "redirect": {"kind": "status", "status": 302, "headers": {"Location": "/elsewhere"}, "body": echo},
        "429": {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}, "body": echo},
        "500": {"kind": "status", "status": 500, "body": echo},
        "drop": {"kind": "drop_after"},
        "half": CUT_OFF,
        "slow": {"kind": "delay", "seconds": 5},
        "oversized": {"kind": "status", "status": 200, "effect": True, "body": " " * 2 * 1024 * 1024},
        "envelope": error_envelope(echo),
        "echo": {"kind": "status", "status": 200, "body": json.dumps({"data": {"x": echo}})},
        "page": {"kind": "status", "status": 200, "body": f"<html>{echo}</html>"},
        "tls": {},
    }


def download_faults() -> dict[str, list[dict[str, Any]]]:
    """Return the faults that affect only downloads, by the service's name."""
    elsewhere = {"Location": f"http://files.example.com/{quote(DOWNLOAD_TOKEN, safe='')}?t={quote(DOWNLOAD_TOKEN, safe='')}"}
    again = {"Location": f"/download?download_token={quote(DOWNLOAD_TOKEN, safe='')}"}
    moved = {"kind": "status", "status": 302}
    return {
        "download_broken": [{**moved, "headers": again}, {"kind": "drop_body", "after": 1000}, {"kind": "status", "status": 410}],
        "download_refused": [{"kind": "status", "status": 403, "body": f"{ECHO_TOKEN} {DOWNLOAD_TOKEN}", "times": 0}],
        "download_redirected": [{**moved, "headers": elsewhere, "times": 0}],
    }


@pytest.fixture(scope="module")
def connections() -> Iterator[dict[str, dict[str, Any]]]:
    """One service for each fault, one that is unreachable, and one with an untrusted certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    patch = pytest.MonkeyPatch()
    patch.setattr("secrets.token_urlsafe", lambda size: DOWNLOAD_TOKEN)
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for name, fault in faults(ECHO_TOKEN).items():
            token = LONGER_TOKEN if name == "longer" else ACCESS_TOKEN
            emulator = stack.enter_context(Emulator(access_token=token, tls=tls if name == "tls" else None))
            store_file(emulator, folder_id="kept")
            store_file(emulator, file_id="f2", folder_id="doomed")
            if fault:
                emulator.fault(operation="upload", times=0, **faults(ECHO)[name])
                emulator.fault(times=0, **fault)
            found[name] = {"host": emulator.url, "password": token}
        for name, faults_of in download_faults().items():
            emulator = stack.enter_context(Emulator(access_token=ACCESS_TOKEN))
            store_file(emulator, content=b"x" * 100_000, folder_id="kept")
            for fault in faults_of:
                emulator.fault(operation="download", **fault)
            found[name] = {"host": emulator.url, "password": ACCESS_TOKEN, "extra": "{}"}  # nothing here is slow
        found["refused"] = {"host": "http://127.0.0.1:9", "password": ACCESS_TOKEN}
        yield {
            f"canary_{name}": {"conn_type": "cloudstore", "extra": json.dumps({"timeout": 1, "max_attempts": 2}), **fields}
            for name, fields in found.items()
        }
    patch.undo()


@pytest.fixture(scope="module")
def other() -> Iterator[OtherServer]:
    with other_server() as server:
        yield server


@pytest.fixture(scope="module")
def airflow(
    connections: dict[str, dict[str, Any]], other: OtherServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealAirflow]:
    """An Airflow that has finished a run of the canary DAG."""
    home = tmp_path_factory.mktemp("canary") / "home"
    env = {
        "CANARY_CONNECTIONS": ",".join(name for name in connections if name.removeprefix("canary_") not in download_faults()),
        "CANARY_OTHER": other.url,
        "CANARY_WITHOUT_OPERATOR": json.dumps(
            {key: (method_of(kind), subject) for key, (kind, subject) in CALLS.items() if key not in WITH_OPERATOR}
        ),
        "CANARY_RECEIPTS": str(home / "receipts-"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    }
    with RealAirflow(home, DAGS, **env) as running:
        running.store(connections, {"canary_source": SOURCE})
        running.start_all()
        run_id = running.trigger("canary")
        states = running.finish(run_id, 600)
        (home / "states.json").write_text(json.dumps({f"{task} {index}": state for (task, index), state in states.items()}))
        yield running


@pytest.fixture(scope="module")
def states(airflow: RealAirflow) -> dict[str, str]:
    return {key.split()[0]: state for key, state in json.loads((airflow.home / "states.json").read_text()).items()}


def test_every_operator_ends_as_its_service_requires(states: dict[str, str], connections: dict[str, dict[str, Any]]) -> None:
    succeed = {f"{operator}.canary_{name}" for operator in CALLS for name in ("ok", "longer")}
    succeed |= {f"{operation}.canary_echo" for operation in CALLS if has_result(operation, b'{"data": {"x": "y"}}')}
    succeed |= {"mapped_upload", "careless", "own_request"}
    succeed |= {"use_token", "use_link"}
    succeed |= {"batch.canary_ok", "batch.canary_echo"}
    succeed |= {"download.canary_ok", "download.canary_download_broken", "transfer"}
    lost = [key for key, (kind, _) in CALLS.items() if kind.operation.missing_is_success]  # the second request finds nothing
    succeed |= {f"{operation}.canary_{name}" for operation in lost for name in ("drop", "half")}
    assert {task for task, state in states.items() if state == "success"} == succeed
    assert {task for task, state in states.items() if state == "failed"} == states.keys() - succeed
    assert len(states) == len(CALLS) * (len(connections) - len(download_faults())) + 21


def test_no_log_file_shows_a_secret(airflow: RealAirflow, states: dict[str, str]) -> None:
    files = dict(airflow.logs())
    task_logs = [text for file, text in files.items() if "task_id=" in str(file)]
    assert len(task_logs) >= len(states)
    assert any("DEBUG" in text or '"debug"' in text for text in task_logs)
    assert not leaks(files.items(), SECRETS)


def test_no_console_shows_a_secret_but_where_airflow_itself_does_not_mask(airflow: RealAirflow) -> None:
    # Airflow 3's supervisor masks task logs, not its own console: there it repeats what a task prints, and at DEBUG the XComs.
    unmasked = ("[task.stdout]", "msg=SetXCom(key='download_link'", "msg=SetXCom(key='return_value'")
    found = leaks(airflow.consoles(), SECRETS)
    assert not {leak for leak in found if not any(mark in leak[1] for mark in unmasked)}


def test_a_request_to_another_server_carries_no_secret(other: OtherServer, states: dict[str, str]) -> None:
    (request,) = other.requests
    assert request.startswith("GET /own HTTP/1.1\n")
    assert "authorization" not in request.lower()
    assert not leaks([(Path("request"), request)], SECRETS)


def test_no_receipt_shows_a_secret(airflow: RealAirflow) -> None:
    parts = [(part, part.read_text()) for part in airflow.home.glob("receipts-*/part-*.jsonl")]
    assert len(parts) == 5
    assert not leaks(parts, SECRETS)


def test_no_table_but_the_connections_and_the_documented_xcoms_shows_a_secret(airflow: RealAirflow) -> None:
    found, seen = set(), set()
    for table, row in airflow.tables():
        seen.add(table)
        documented = table == "xcom" and row["task_id"].startswith("link.") and row["key"] in ("return_value", "download_link")
        text = "\n".join(value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row.values())
        for secret in SECRETS:
            if not (documented and secret == DOWNLOAD_TOKEN):
                found |= {(table, str(row)[:300], form) for form in printed(secret) if form in text}
    consumed = airflow.rows(
        "select rendered_fields from rendered_task_instance_fields where task_id in ('use_token', 'use_link')"
    )
    assert sum(str(row).count("***") for (row,) in consumed) == 3, consumed  # a token; a token and a URL
    assert {"rendered_task_instance_fields", "xcom", "task_instance", "connection", "log", "serialized_dag"} <= seen
    assert not found
