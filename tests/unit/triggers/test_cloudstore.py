from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cloudstore.compat import BaseHook
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.hooks import connection
from airflow_provider_cloudstore.protocol import file_wait
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import store_file


@pytest.fixture(autouse=True)
def _no_scheduler_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_wait, "SETTLE_SECONDS", 0.0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a trigger asks for; none takes time, and the third is cancelled, as when the task is cleared."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("airflow_provider_cloudstore.triggers.cloudstore.asyncio", SimpleNamespace(sleep=sleep))
    return asked


def run(emulator: Emulator, interval: float = 0.05, timeout: float = 20.0, ago: float = 0.0) -> dict[str, Any]:
    """Run a trigger of a wait that began so many seconds ago, as the triggerer makes it; what its one event says."""
    began = datetime.now(UTC) - timedelta(seconds=ago)
    moment = began.isoformat()
    path, kwargs = FileAvailableTrigger("cloudstore_default", "f1", interval, timeout, moment, not_before=moment).serialize()
    assert path == "airflow_provider_cloudstore.triggers.cloudstore.FileAvailableTrigger"
    assert kwargs.keys() == {"cloudstore_conn_id", "file_id", "poll_interval", "timeout", "began", "not_before"}
    stored = json.dumps(kwargs)
    assert emulator.access_token not in stored

    async def events() -> list[Any]:
        return [event.payload async for event in FileAvailableTrigger(**json.loads(stored)).run()]

    (event,) = asyncio.run(events())
    return dict(event)


def test_the_event_says_that_the_file_is_there_and_nothing_more(emulator: Emulator) -> None:
    store_file(emulator)
    assert run(emulator) == {"status": "available", "file_id": "f1"}
    assert emulator.state()["requests"] == {"link": 1}


def test_a_refused_token_ends_the_wait_and_is_in_no_event(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection(emulator.url, "wrong-token"))
    event = run(emulator)
    assert event["error"]["kind"] == "AuthenticationError"
    assert "wrong-token" not in json.dumps(event)
    assert emulator.state()["requests"] == {"link": 1}


def test_a_deadline_that_passed_before_a_restart_costs_one_look(emulator: Emulator) -> None:
    assert run(emulator, ago=30)["error"]["kind"] == "FileWaitTimeoutError"
    assert emulator.state()["requests"] == {"link": 1}
    store_file(emulator)
    assert run(emulator, ago=30) == {"status": "available", "file_id": "f1"}


def test_first_polls_are_spread_over_the_interval_and_the_next_come_when_the_service_asks_while_the_wait_lasts(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    for seconds in (30, 300):
        emulator.fault("status", status=429, headers={"Retry-After": seconds})
    assert run(emulator, interval=10, timeout=100)["error"]["kind"] == "FileWaitTimeoutError"
    assert pauses == [10, 30]


def test_a_connection_that_is_deleted_and_added_again_ends_no_wait(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT")
    store_file(emulator)
    reads = list[str]()
    original = BaseHook.get_connection

    def read(conn_id: str) -> Any:
        reads.append(conn_id)
        if len(reads) == 2:
            monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        return original(conn_id)

    monkeypatch.setattr(connection, "get_async_connection", lambda conn_id: asyncio.to_thread(read, conn_id))
    assert run(emulator) == {"status": "available", "file_id": "f1"}
    assert len(reads) == 2


def test_a_connection_that_does_not_come_back_ends_it(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT")
    monkeypatch.setattr(file_wait, "INCONCLUSIVE_SECONDS", 0.2)
    event = run(emulator)
    assert event["error"]["kind"] == "CloudStoreError"
    assert "it is not defined" in event["error"]["reason"]
    assert emulator.state()["requests"] == {}
