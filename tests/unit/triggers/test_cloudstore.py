from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_cloudstore.clients import asynchronous
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableTrigger
from tests.support import eventually, store_file


@pytest.fixture(autouse=True)
def _no_scheduler_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SETTLE_SECONDS", 0.0)


def trigger(seconds: float = 20.0, interval: float = 0.05, file_id: str = "f1") -> FileAvailableTrigger:
    made = FileAvailableTrigger("cloudstore_default", file_id, interval, seconds, datetime.now(UTC).isoformat())
    path, kwargs = made.serialize()
    assert path == "airflow_provider_cloudstore.triggers.cloudstore.FileAvailableTrigger"
    return FileAvailableTrigger(**json.loads(json.dumps(kwargs)))  # as the triggerer makes it


async def events(of: FileAvailableTrigger) -> list[dict[str, Any]]:
    return [dict(event.payload) async for event in of.run()]


def run(of: FileAvailableTrigger) -> dict[str, Any]:
    (event,) = asyncio.run(events(of))
    return event


def test_the_event_says_that_the_file_is_there_and_nothing_more(emulator: Emulator) -> None:
    store_file(emulator)
    assert run(trigger()) == {"status": "available"}
    state = emulator.state()
    assert state["requests"] == {"link": 1}


def test_a_refused_token_ends_the_wait_after_the_connection_was_read_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection(emulator.url, "wrong-token"))
    event = run(trigger())
    assert event["error"]["kind"] == "AuthenticationError"
    assert "wrong-token" not in json.dumps(event)
    assert emulator.state()["requests"] == {"link": 1}


def test_a_deadline_in_the_past_costs_one_look(emulator: Emulator) -> None:
    assert run(trigger(seconds=-10))["error"]["kind"] == "FileWaitTimeoutError"
    store_file(emulator)
    assert run(trigger(seconds=-10)) == {"status": "available"}


def test_it_pauses_between_polls(emulator: Emulator) -> None:
    run(trigger(seconds=1, interval=0.2))
    assert 2 <= emulator.state()["requests"]["link"] <= 9


@pytest.mark.parametrize("after", [0.0, 0.05])
def test_cancelling_it_sends_no_event_and_leaves_nothing_open(emulator: Emulator, after: float) -> None:
    emulator.fault("delay", seconds=0.03, times=0)

    async def cancel() -> None:
        waiting = asyncio.create_task(events(trigger()))
        await asyncio.sleep(after)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.gather(*asynchronous._closing)
        own = {asyncio.current_task()}
        if reading := asyncio.all_tasks() - own:  # other waits may share the read of the connection: it ends by itself
            await asyncio.wait(reading, timeout=30)
        assert asyncio.all_tasks() == own

    asyncio.run(cancel())
    assert not asynchronous._shared
    eventually(lambda: emulator.call(lambda service: not service.connections()))


@asynccontextmanager
async def watchdog(allowed: float) -> AsyncIterator[None]:
    """Fails if the event loop was blocked for longer than ``allowed`` seconds."""
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - began)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        await asyncio.sleep(0.01)
        watching.cancel()
    assert worst < allowed, f"the event loop was blocked for {worst:.3f} s"


def test_the_event_loop_is_never_blocked_not_even_while_the_connection_is_read(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = BaseHook.get_connection.__func__  # type: ignore[attr-defined]

    def slow(cls: type[BaseHook], conn_id: str) -> Any:
        time.sleep(0.5)  # a secrets backend that takes its time
        return original(cls, conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(slow))
    if hasattr(BaseHook, "aget_connection"):

        async def slow_too(cls: type[BaseHook], conn_id: str) -> Any:
            return await asyncio.to_thread(slow, cls, conn_id)

        monkeypatch.setattr(BaseHook, "aget_connection", classmethod(slow_too))

    async def wait() -> list[dict[str, Any]]:
        async with watchdog(0.4):
            return await events(trigger(seconds=1.0))

    asyncio.run(events(trigger(seconds=-1)))  # imports
    assert asyncio.run(wait())[0]["error"]["kind"] == "FileWaitTimeoutError"


def test_its_arguments_hold_no_secret(emulator: Emulator) -> None:
    _, kwargs = trigger().serialize()
    assert kwargs.keys() == {"cloudstore_conn_id", "file_id", "poll_interval", "timeout", "began"}
    assert emulator.access_token not in json.dumps(kwargs)
    assert datetime.fromisoformat(kwargs["began"]).utcoffset() is not None
