"""Helpers that several test modules share: settings, files in the emulator, and what Airflow stored."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from packaging.version import Version

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.exceptions import CloudStoreError
from airflow_provider_cloudstore.protocol.call import Attempt
from airflow_provider_cloudstore.protocol.http import Response, TransportFailure
from airflow_provider_cloudstore.protocol.operations import OPERATIONS, Operation
from airflow_provider_cloudstore.protocol.parse_connection import parse_connection
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.services import Service
from airflow_provider_cloudstore.protocol.settings import Settings

TOKEN = "s3cret-access-token"
HAS_RETRY_POLICIES = Version(version("apache-airflow")) >= Version("3.3")
VALUES = {
    "folder_id": "staging",
    "file_id": "f1",
    "url": "ftp://127.0.0.1:9/file",  # never fetched: the emulator's queue fails it
}
"""For each parameter of an operation a value for which it succeeds once :func:`store_file` was called."""
KINDS: dict[str, type[Operation[Any]]] = {one.key: one for one in OPERATIONS}
"""Each operation by its key."""
CALLS: dict[str, tuple[Any, ...]] = {
    one.key: (one, *map(VALUES.get, one.own_parameters)) for one in OPERATIONS if one.own_parameters.keys() <= VALUES.keys()
}
"""Each operation with its arguments, by its key. ``tests/unit/protocol/test_operations.py`` says what is missing."""
RECEIVED = pendulum.datetime(2026, 1, 1, 0, 0, 1)
"""When a response of :func:`response` arrived, a second after its request was sent."""


def result_of(operation: Operation[Any], outcome: Response | TransportFailure, own: Settings | None = None) -> Any:
    """Return what an operation makes of the outcome of its only attempt, or raise its error."""
    ended = Attempt(operation, own or settings()).interpret(outcome)
    if isinstance(ended, CloudStoreError):
        raise ended
    return ended


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries: ``count`` in ``make test``, many more in ``make test-random``."""
    return int(os.environ.get("CLOUDSTORE_CASES", count))


def settings(base_url: str = "https://files.example.com", token: str = TOKEN, **more: Any) -> Settings:
    declared = {name: more.pop(name) for name in Service.__dataclass_fields__ if name in more}
    return Settings(base_url, Secret(token), Service(**declared), **more)


def connected(extra: dict[str, Any], host: str | None = "https://h", password: str | None = TOKEN, **fields: Any) -> Settings:
    """The settings of an Airflow connection, which has only what a test says of it."""
    connection = SimpleNamespace(
        **({"schema": None, "port": None, "conn_type": None, "login": None} | fields), host=host, password=password
    )
    return parse_connection(connection, extra)


def response(status: int = 200, body: Any = b"", **headers: str) -> Response:
    """Return a response that a client received.

    :param body: bytes, or what becomes JSON.
    :param headers: their names with underscores, beside ``Content-Length``.
    """
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    moment = RECEIVED.timestamp()
    return Response(status, {"content-length": str(len(raw)), **named}, raw, moment - 1, moment)


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Define the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps({"conn_type": "cloudstore", **fields}))


def store_file(emulator: Emulator, content: bytes = b"hello", file_id: str = "f1", folder_id: str = "staging") -> str:
    """Put a file into the emulator without an upload."""
    return emulator.put_file(content, file_id, folder_id)


def context(pushed: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return what an operator needs of the context of a try.

    :param pushed: gets the XComs, by their keys.
    :param more: other attributes of the task instance.
    """
    xcoms = {} if pushed is None else pushed
    names = {"dag_id": "dag", "run_id": "run", "task_id": "t", "map_index": -1}
    attributes = {**names, "try_number": 1, "max_tries": 0, **more}
    return {"ti": SimpleNamespace(**attributes, xcom_push=lambda key, value: xcoms.update({key: value}))}


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait until a condition holds, and return its value."""
    ends_at = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends_at, f"not within {seconds} s"
        time.sleep(0.02)
    return value


def rendered_fields(dag_id: str, task_id: str) -> list[Any]:
    """Return the rendered template fields that Airflow stored for a task of the DAG's last run, by map index."""
    from airflow.models.dagrun import DagRun
    from airflow.models.renderedtifields import RenderedTaskInstanceFields as Fields
    from airflow.utils.session import create_session

    with create_session() as session:
        run_id = session.query(DagRun.run_id).filter(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(1).scalar()
        of_task = (Fields.dag_id == dag_id, Fields.task_id == task_id, Fields.run_id == run_id)
        return [row.rendered_fields for row in session.query(Fields).filter(*of_task).order_by(Fields.map_index)]


def assert_within_bounds(*, twice: float, at_most: float, lost: float, **seen: float) -> None:
    """Fail if more was sent twice than promised, or anything was lost; print the figures (``-rP``).

    :param seen: other figures, which are only printed.
    """
    print({"twice": twice, "at_most": at_most, "lost": lost, **seen})
    assert lost == 0
    assert twice <= at_most


def ending(operation: str, body: Any, status: int = 200, *, ignore_missing: bool = False, **extra: Any) -> str:
    """The name of the error, or what a success returns."""
    own = connected(extra, password="access-1")
    kind, *arguments = CALLS[operation]
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    options = {"ignore_missing": ignore_missing} if operation == "delete" else {}
    ended: Any = Attempt(kind(own, *arguments, **options), own).interpret(response(status, raw))
    if isinstance(ended, CloudStoreError):
        return type(ended).__name__
    return str(getattr(ended, {"delete": "existed", "upload": "file_id", "link": "token"}[operation]))
