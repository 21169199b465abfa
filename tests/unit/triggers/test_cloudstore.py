from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import store_file


@pytest.fixture(autouse=True)
def _no_scheduler_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SETTLE_SECONDS", 0.0)


def run(emulator: Emulator, seconds: float = 20.0, interval: float = 0.05) -> dict[str, Any]:
    """Run a trigger as the triggerer makes it, and return what its one event says."""
    path, kwargs = FileAvailableTrigger("cloudstore_default", "f1", interval, seconds, datetime.now(UTC).isoformat()).serialize()
    assert path == "airflow_provider_cloudstore.triggers.cloudstore.FileAvailableTrigger"
    assert kwargs.keys() == {"cloudstore_conn_id", "file_id", "poll_interval", "timeout", "began"}
    stored = json.dumps(kwargs)
    assert emulator.access_token not in stored

    async def events() -> list[Any]:
        return [event.payload async for event in FileAvailableTrigger(**json.loads(stored)).run()]

    (event,) = asyncio.run(events())
    return dict(event)


def test_the_event_says_that_the_file_is_there_and_nothing_more(emulator: Emulator) -> None:
    store_file(emulator)
    assert run(emulator) == {"status": "available"}
    assert emulator.state()["requests"] == {"link": 1}


def test_a_refused_token_ends_the_wait_and_is_in_no_event(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection(emulator.url, "wrong-token"))
    event = run(emulator)
    assert event["error"]["kind"] == "AuthenticationError"
    assert "wrong-token" not in json.dumps(event)
    assert emulator.state()["requests"] == {"link": 1}


def test_it_pauses_between_polls_and_ends_at_the_deadline(emulator: Emulator) -> None:
    assert run(emulator, seconds=0.4, interval=0.1)["error"]["kind"] == "FileWaitTimeoutError"
    assert emulator.state()["requests"]["link"] <= 9


def test_a_deadline_in_the_past_costs_one_look(emulator: Emulator) -> None:
    store_file(emulator)
    assert run(emulator, seconds=-10) == {"status": "available"}


def test_the_event_loop_does_not_wait_while_the_connection_is_read(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    original, in_the_loop = BaseHook.get_connection, []

    def read(conn_id: str) -> Any:
        with suppress(RuntimeError):  # no event loop runs in this thread
            in_the_loop.append(asyncio.get_running_loop())
        return original(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(read))
    store_file(emulator)
    assert run(emulator) == {"status": "available"}
    assert not in_the_loop
