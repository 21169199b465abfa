"""Secrets with awkward characters pass through every operator and failure on a complete Airflow at DEBUG; no output has them.

Slow: ``make test-airflow`` runs it on both Airflows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import RealAirflow

pytestmark = pytest.mark.slow

ACCESS_TOKEN = "canary+access/token=%&#"
LONGER_TOKEN = ACCESS_TOKEN + "-and-a-tail"  # begins with the shorter one
DOWNLOAD_TOKEN = "canary+download/token=%&#é"
PASSWORD = "canary+pass/word=%&#é x"
SIGNATURE = "canary+signature/=%&#é x"
SOURCE = f"ftp://user:{quote(PASSWORD, safe='')}@127.0.0.1:9/file?a=b&sig={quote(SIGNATURE, safe='')}"
ECHO_TOKEN = f"no {ACCESS_TOKEN} {quote(ACCESS_TOKEN)}"  # a service that echoes its request
ECHO = f"{ECHO_TOKEN} {SOURCE} {SIGNATURE} {PASSWORD}"  # ... to an upload
LOGIN = "canaryLogin" + "x" * 53  # which Airflow keeps in clear text with the connection
KEY = "canaryKey" + "x" * 55  # each token that it is for begins with it
ACCOUNT_ID = "158642"
SECRETS = (ACCESS_TOKEN, LONGER_TOKEN, DOWNLOAD_TOKEN, PASSWORD, SIGNATURE, LOGIN, KEY, ACCOUNT_ID)


ELSEWHERE = {"Location": f"http://files.example.com/{quote(DOWNLOAD_TOKEN, safe='')}?t={quote(DOWNLOAD_TOKEN, safe='')}"}
DOWNLOAD_FAULTS: dict[str, list[dict[str, Any]]] = {
    "download_broken": [{"kind": "drop_body", "after": 1000}, {"kind": "status", "status": 410}],
    "download_refused": [{"kind": "status", "status": 403, "body": f"{ECHO_TOKEN} {DOWNLOAD_TOKEN}", "times": 0}],
    "download_redirected": [{"kind": "status", "status": 302, "headers": ELSEWHERE, "times": 0}],
}
"""The faults that affect only downloads, by the service's name."""


def faults(echo: str) -> dict[str, dict[str, Any]]:
    """The fault of each service, by the service's name, where its message is ``echo``."""
    return {
        "ok": {},
        "longer": {},
        "400": {"kind": "status", "status": 400, "body": echo},
        "401": {"kind": "status", "status": 401, "body": echo},
        "half": {"kind": "drop_body", "after": 10},
        "echo": {"kind": "status", "status": 200, "body": json.dumps({"data": {"x": echo}})},
    }


def leaks(texts: Iterable[tuple[Path, str]], secrets: Iterable[str]) -> set[tuple[str, str, str]]:
    """Return the file, line and form of every secret found."""
    forms = {form for secret in secrets for form in printed(secret)}
    return {
        (file.name, line[:300], form)
        for file, text in texts
        for form in forms
        if form in text
        for line in text.splitlines()
        if form in line
    }


def printed(secret: str) -> set[str]:
    """Return every form that a library could print of a secret; not the package's own list, which is under test."""
    encoded = {quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="!#$%&'()*+,/:;=?@[]~")}
    encoded |= {quote(secret, safe="?/:@-._~!$'()*,"), quote(secret, safe="/:=&+"), quote_plus(secret, safe="?/:@-._~!$'()*,")}
    return (
        {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], ascii(secret)[1:-1]} | encoded | {one.lower() for one in encoded}
    )


def texts_of(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Yield the text of each row, under the name of its table."""
    for table, row in rows:
        values = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row.values()]
        yield Path(table), "\n".join(values)


@pytest.fixture(scope="module")
def connections() -> Iterator[dict[str, dict[str, Any]]]:
    """One service for each fault, and one that is unreachable."""
    found = {"refused": {"host": "http://127.0.0.1:9", "password": ACCESS_TOKEN}}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("secrets.token_urlsafe", lambda size: DOWNLOAD_TOKEN)
        patch.setattr("secrets.token_hex", lambda size: KEY)
        site = stack.enter_context(Emulator(service="yetishare"))
        site.call(lambda service: vars(service).update(key1=LOGIN, key2=KEY))
        site.put_file(b"hello", "f1", "kept")
        site.put_file(b"hello", "f2", "doomed")
        found["site"] = {**json.loads(site.connection), "extra": json.dumps({"service": "yetishare"})}
        for name, fault in faults(ECHO_TOKEN).items():
            token = LONGER_TOKEN if name == "longer" else ACCESS_TOKEN
            emulator = stack.enter_context(Emulator(access_token=token))
            emulator.put_file(b"hello", "f1", "kept")
            emulator.put_file(b"hello", "f2", "doomed")
            if fault:
                emulator.fault(operation="upload", times=0, **faults(ECHO)[name])
                emulator.fault(times=0, **fault)
            found[name] = {"host": emulator.url, "password": token}
        for name, faults_of in DOWNLOAD_FAULTS.items():
            emulator = stack.enter_context(Emulator(access_token=ACCESS_TOKEN))
            emulator.put_file(b"x" * 100_000, "f1", "kept")
            for fault in faults_of:
                emulator.fault(operation="download", **fault)
            found[name] = {"host": emulator.url, "password": ACCESS_TOKEN, "extra": "{}"}  # a download needs more attempts
        yield {
            f"canary_{name}": {"conn_type": "cloudstore", "extra": json.dumps({"timeout": 1, "max_attempts": 2}), **fields}
            for name, fields in found.items()
        }


@pytest.fixture(scope="module")
def airflow(connections: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    """An Airflow at DEBUG on which the DAG has run; its home is in the folder that the DAG reads and writes."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "urls.csv").write_text(f"url\n{SOURCE}\n")
    env = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG", "CANARY_FOLDER": str(folder)}
    with RealAirflow(folder / "home", Path(__file__).resolve().parent / "dags", **env) as running:
        running.store(connections, {"canary_source": SOURCE})
        running.start_all()
        running.unpause("canary")
        started = "select run_id from dag_run where dag_id = 'canary'"
        ((run_id,),) = running.until("the run has begun", lambda: running.rows(started))
        running.finish(run_id, 600)
        yield running


def test_every_operator_ends_as_its_service_requires(airflow: RealAirflow, connections: dict[str, dict[str, Any]]) -> None:
    states = dict(airflow.rows("select task_id, state from task_instance where dag_id = 'canary'"))
    succeed = {f"{operator}.{name}" for operator in ("delete", "upload", "link") for name in ("ok", "longer", "site")}
    succeed |= {f"{operator}.echo" for operator in ("delete", "upload", "batch")}
    succeed |= {"delete.half"}  # the second request finds nothing
    succeed |= {"batch.ok", "mapped_upload", "careless", "use_token", "use_link", "download_broken"}
    assert {task for task, state in states.items() if state == "success"} == succeed
    assert {task for task, state in states.items() if state == "failed"} == states.keys() - succeed
    assert len(states) == 3 * (len(connections) - len(DOWNLOAD_FAULTS)) + 12


def test_no_log_file_shows_a_secret(airflow: RealAirflow) -> None:
    files = dict(airflow.logs())
    (tasks,) = airflow.rows("select count(*) from task_instance where dag_id = 'canary'")
    task_logs = [text for file, text in files.items() if "dag_id=canary" in str(file)]
    assert len(task_logs) >= tasks[0]
    assert any("DEBUG" in text or '"debug"' in text for text in task_logs)
    assert not leaks(files.items(), SECRETS)


def test_no_console_shows_a_secret_but_where_airflow_itself_does_not_mask(airflow: RealAirflow) -> None:
    # Airflow 3's supervisor masks task logs, not its own console: there it repeats what a task prints, and at DEBUG the XComs.
    unmasked = ("[task.stdout]", "msg=SetXCom(key='download_link'", "msg=SetXCom(key='return_value'")
    found = leaks(airflow.consoles(), SECRETS)
    assert not {leak for leak in found if not any(mark in leak[1] for mark in unmasked)}


def test_no_receipt_shows_a_secret(airflow: RealAirflow) -> None:
    parts = [(part, part.read_text()) for part in airflow.home.parent.glob("receipts-*/part-*.jsonl")]
    assert len(parts) == 3
    assert not leaks(parts, SECRETS)


def test_no_table_but_the_connections_and_the_documented_xcoms_shows_a_secret(airflow: RealAirflow) -> None:
    tables = list(airflow.tables())

    def is_documented(table: str, row: dict[str, Any]) -> bool:
        return table == "xcom" and row["task_id"].startswith("link.") and row["key"] in ("return_value", "download_link")

    others = [(table, row) for table, row in tables if not is_documented(table, row)]
    assert {"rendered_task_instance_fields", "xcom", "task_instance", "connection", "log"} <= {table for table, _ in others}
    assert not {leak for leak in leaks(texts_of(others), SECRETS) if (leak[0], leak[2]) != ("connection", LOGIN)}
    assert not leaks(texts_of(tables), set(SECRETS) - {DOWNLOAD_TOKEN, LOGIN})
    consumed = airflow.rows(
        "select rendered_fields from rendered_task_instance_fields where task_id in ('use_token', 'use_link')"
    )
    assert sum(str(row).count("***") for (row,) in consumed) == 3, consumed  # a token; a token and a URL
