"""Odd answers on a whole Airflow with retries: how often each operator asks, what is stored, and whose exceptions are logged.

Slow: it starts an Airflow. ``make test-odd-responses`` runs it on both Airflows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.real_airflow import RealAirflow

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parent / "dags"
ACCESS_TOKEN = "odd+access/token=%&7"
TOKEN = "the-download-token"
LINK = f'"download_token": "{TOKEN}"'
TRIES = 3  # the first one and two retries
CONNECTION = "airflow.models.connection.Connection"


@dataclass(frozen=True)
class Ends:
    """How an operator's task ends: its result, or the one error in its log; and how many requests arrived until then."""

    error: str | None
    requests: int


DONE = Ends(None, 1)
REPORTED = Ends("ServiceError", TRIES)
UNUSABLE = Ends("InvalidResponseError", TRIES)
UNKNOWN = Ends("OutcomeUnknownError", 1)


@dataclass(frozen=True)
class Service:
    """A service with one answer to everything, and how each operator ends with it."""

    body: str
    delete: Ends = DONE
    upload: Ends = DONE
    link: Ends = DONE
    content_type: str = "application/json"

    def ends(self) -> dict[str, Ends]:
        return {"delete": self.delete, "upload": self.upload, "link": self.link}


def error(more: str) -> Service:
    return Service(f'{{"_status": "error", "response": "no such thing", {more}}}', REPORTED, REPORTED, REPORTED)


SERVICES = {
    "integer": Service(f'{{"_status": "success", "n": 18446744073709551616, {LINK}}}'),
    "keys": Service(f'{{"__id__": "a", "x": {{"__classname__": "{CONNECTION}", "__version__": 1, "__data__": {{}}}}, {LINK}}}'),
    "surrogate": Service(f'{{"x": "+2AA-", {LINK}}}', content_type="application/json; charset=utf-7"),
    "escaped_surrogate": Service(f'{{"x": "a\\ud800\\u0000b", "\\udfff": 1, {LINK}}}'),
    "error_nan": error('"x": NaN'),
    "error_escapes": error('"x": [1e400, "\\u0000", "\\ud800"]'),
    "error_digits": error(f'"x": {"7" * 4500}'),
    "broken": Service("{broken", UNUSABLE, UNKNOWN, UNUSABLE),
    "token": Service(json.dumps({"download_token": ACCESS_TOKEN}), link=UNUSABLE),
    "token_bare": Service(ACCESS_TOKEN, link=UNUSABLE, content_type="text/plain"),
    "token_in_url": Service(
        json.dumps({"data": {"url": "https://h.example/?token=odd%2Baccess%2Ftoken%3D%25%267"}}), link=UNUSABLE
    ),
    "token_beside": Service(json.dumps({"token": TOKEN, "url": "https://h.example/?t=odd%2Baccess%2Ftoken%3D%25%267"})),
    "type": Service(f'{{"__type": "{CONNECTION}", "__var": {{"conn_id": "x", "conn_type": "http", "host": "h"}}, {LINK}}}'),
}
TASKS = [(name, operation) for name in SERVICES for operation in ("delete", "upload", "link")]


@dataclass(frozen=True)
class Run:
    """What the run of all tasks left behind."""

    states: dict[str, str]
    requests: dict[str, dict[str, int]]
    pulled: dict[str, Any]
    stored: dict[tuple[str, str], Any]
    raw_xcoms: str
    logs: dict[str, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("odd") / "home"
    pulled = home / "pulled.json"
    with ExitStack() as stack:
        emulators = {name: stack.enter_context(Emulator(access_token=ACCESS_TOKEN)) for name in SERVICES}
        for name, service in SERVICES.items():
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {service.content_type}\r\nContent-Length: {len(service.body)}\r\n\r\n"
            emulators[name].fault("raw", times=0, effect=False, close=False, raw=head + service.body)
        airflow = stack.enter_context(RealAirflow(home, DAGS, ODD_SERVICES=",".join(SERVICES), ODD_PULLED=str(pulled)))
        connections = {
            f"odd_{name}": {"conn_type": "cloudstore", "host": emulator.url, "password": ACCESS_TOKEN}
            for name, emulator in emulators.items()
        }
        airflow.store(connections, {})
        airflow.start_all()
        states = {task_id: state for (task_id, _), state in airflow.finish(airflow.trigger("odd_responses"), 300).items()}
        rows = airflow.rows("select task_id, key, value from xcom")
        yield Run(
            states,
            {name: emulator.state()["requests"] for name, emulator in emulators.items()},
            json.loads(pulled.read_text()),
            {(task_id, key): _decoded(value) for task_id, key, value in rows},
            "\n".join(str(value) for _, _, value in rows),
            {task_id: "".join(text for file, text in airflow.logs() if f"task_id={task_id}/" in str(file)) for task_id in states},
        )


def _decoded(value: Any) -> Any:
    """A row's value: JSON, once or twice."""
    text = value.decode() if isinstance(value, bytes) else value
    decoded = json.loads(text)
    return json.loads(decoded) if isinstance(decoded, str) and decoded[:1] in ("{", "[", '"') else decoded


@pytest.mark.parametrize(("name", "operation"), TASKS)
def test_a_task_sends_as_many_requests_as_the_failure_table_says_and_ends_as_it_says(run: Run, name: str, operation: str) -> None:
    ends = SERVICES[name].ends()[operation]
    state = run.states[f"{operation}.{name}"]
    assert (state, run.requests[name].get(operation)) == ("failed" if ends.error else "success", ends.requests)


@pytest.mark.parametrize(("name", "operation"), TASKS)
def test_what_is_stored_is_plain_data_that_a_downstream_task_gets_as_it_is(run: Run, name: str, operation: str) -> None:
    task_id = f"{operation}.{name}"
    value = run.pulled[task_id]
    assert run.stored.get((task_id, "return_value")) == value
    if SERVICES[name].ends()[operation].error:
        assert value is None
    elif operation == "link":
        assert value == TOKEN
        assert run.pulled[f"{task_id} download_link"]["token"] == TOKEN
    else:
        assert {"requested_at", "response"} < value.keys()
    assert "<" not in json.dumps(value)  # no object of a type that JSON does not know


def test_no_xcom_holds_the_access_token_or_a_key_that_airflow_gives_a_meaning_to(run: Run) -> None:
    assert "odd+access" not in run.raw_xcoms
    assert "odd%2Baccess" not in run.raw_xcoms
    meaningful = {"__id__", "__classname__", "__version__", "__data__", "__type", "__var"}
    assert not {key for value in run.stored.values() for key in keys(value)} & meaningful


def keys(value: Any) -> Iterator[str]:
    """Every key in a value, at any depth."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    yield from value if isinstance(value, dict) else ()
    for one in inner:
        yield from keys(one)


@pytest.mark.parametrize(("name", "operation"), TASKS)
def test_no_foreign_exception_and_no_token_stands_in_a_tasks_log(run: Run, name: str, operation: str) -> None:
    log = run.logs[f"{operation}.{name}"]
    expected = SERVICES[name].ends()[operation].error
    assert log
    assert exceptions(log) == ({expected} if expected else set())
    assert "odd+access" not in log
    assert "odd%2Baccess" not in log


def exceptions(log: str) -> set[str]:
    """The names of the exceptions in a task's log: in JSON (Airflow 3), or as Python prints them."""
    named = set(re.findall(r'"exc_type": ?"(\w+)"', log))
    if "Traceback (most recent call last)" in log:
        named |= {name.rpartition(".")[2] for name in re.findall(r"^([A-Za-z_][\w.]*)(?:: .*)?$", log, re.MULTILINE)}
    return named
