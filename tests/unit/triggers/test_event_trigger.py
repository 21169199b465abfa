from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.hooks import shared_connection
from airflow_provider_cloudstore.protocol import waiting
from airflow_provider_cloudstore.protocol.errors import InvalidInputError
from airflow_provider_cloudstore.triggers import cloudstore as triggers
from airflow_provider_cloudstore.triggers.cloudstore import FileAvailableEventTrigger
from tests.support import store_file


class Store:
    """An asset's state store, as Airflow 3.3's."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.away = False

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        if self.away:
            raise ConnectionError("https://api-server/?secret")
        self.values[key] = value


class Stores:
    """Those of all assets that a trigger watches."""

    def __init__(self, *stores: Store) -> None:
        self._by_name = {str(number): store for number, store in enumerate(stores)}
        self._by_uri: dict[str, Store] = {}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(triggers, "RECORD_AFTER_SECONDS", 0.3)


def trigger(file_ids: list[str], *stores: Store, interval: float = 0.05) -> FileAvailableEventTrigger:
    path, kwargs = FileAvailableEventTrigger(file_ids, poll_interval=interval).serialize()
    assert path == "airflow_provider_cloudstore.triggers.cloudstore.FileAvailableEventTrigger"
    made = FileAvailableEventTrigger(**json.loads(json.dumps(kwargs)))  # as the triggerer makes it
    if stores:
        of_assets: Any = Stores(*stores)
        made.asset_state_store = of_assets
    return made


class Running:
    """A trigger in a triggerer: what it has sent, until it is killed."""

    def __init__(self, of: FileAvailableEventTrigger) -> None:
        self.events: list[Any] = []
        self._task = asyncio.create_task(self._collect(of))

    async def _collect(self, of: FileAvailableEventTrigger) -> None:
        async for event in of.run():
            self.events.append(event.payload)

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(20):
            while not true():
                assert not self._task.done(), self._task
                await asyncio.sleep(0.01)

    async def kill(self) -> list[Any]:
        assert not self._task.done(), "a watch never ends by itself"
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.events


def test_each_round_that_finds_files_is_one_event_and_the_watch_never_ends(emulator: Emulator) -> None:
    async def watch() -> list[Any]:
        store = Store()
        running = Running(trigger(["f1", "f2"], store))
        await running.until(lambda: emulator.state()["requests"].get("link", 0) > 4)
        assert running.events == []
        await asyncio.to_thread(store_file, emulator, file_id="f2")
        await running.until(lambda: len(store.values) == 1)
        await asyncio.to_thread(store_file, emulator, file_id="f1")
        await running.until(lambda: len(store.values) == 2)
        return await running.kill()

    assert asyncio.run(watch()) == [{"file_ids": ["f2"]}, {"file_ids": ["f1"]}]
    assert emulator.state()["requests"].keys() == {"link"}


def test_files_that_become_available_together_are_one_event(emulator: Emulator) -> None:
    for file_id in ("f1", "f2", "f3"):
        store_file(emulator, file_id=file_id)

    async def watch() -> list[Any]:
        store = Store()
        running = Running(trigger(["f1", "missing", "f2", "f3"], store))
        await running.until(lambda: len(store.values) == 3)
        return await running.kill()

    # As separate events, all but the first could wait for the next event to trigger a DAG run: apache/airflow 54659.
    assert asyncio.run(watch()) == [{"file_ids": ["f1", "f2", "f3"]}]


def test_a_triggerer_that_starts_again_reports_nothing_twice(emulator: Emulator) -> None:
    store_file(emulator)

    async def watch() -> list[Any]:
        store = Store()
        first = Running(trigger(["f1"], store))
        await first.until(lambda: store.values)
        await first.kill()
        second = Running(trigger(["f1", "f2"], store))  # a file was added meanwhile
        await asyncio.to_thread(store_file, emulator, file_id="f2")
        await second.until(lambda: len(store.values) == 2)
        return [first.events, await second.kill()]

    assert asyncio.run(watch()) == [[{"file_ids": ["f1"]}], [{"file_ids": ["f2"]}]]


def test_an_event_that_the_kill_may_have_swallowed_is_sent_again(emulator: Emulator) -> None:
    store_file(emulator)

    async def watch() -> list[Any]:
        store = Store()
        first = Running(trigger(["f1"], store))
        await first.until(lambda: first.events)
        await first.kill()
        assert store.values == {}
        second = Running(trigger(["f1"], store))
        await second.until(lambda: store.values)
        return [*first.events, *await second.kill()]

    assert asyncio.run(watch()) == [{"file_ids": ["f1"]}] * 2


def test_without_a_state_store_a_restart_reports_again_and_one_run_does_not(emulator: Emulator) -> None:
    store_file(emulator)

    async def watch() -> list[Any]:
        seen: list[Any] = []
        for _ in range(2):
            running = Running(trigger(["f1", "never"]))
            looked = emulator.state()["requests"].get("link", 0)
            await running.until(lambda looked=looked: emulator.state()["requests"].get("link", 0) > looked + 4)
            seen += await running.kill()
        return seen

    assert asyncio.run(watch()) == [{"file_ids": ["f1"]}] * 2


def test_every_asset_that_watches_with_one_trigger_must_know_of_a_file(emulator: Emulator) -> None:
    store_file(emulator)

    async def watch(*stores: Store) -> list[Any]:
        running = Running(trigger(["f1", "never"], *stores))
        looked = emulator.state()["requests"].get("link", 0)
        await running.until(
            lambda: emulator.state()["requests"].get("link", 0) > looked + 4 and all(store.values for store in stores)
        )
        return await running.kill()

    first, second = Store(), Store()
    assert asyncio.run(watch(first)) == [{"file_ids": ["f1"]}]
    assert asyncio.run(watch(first, second)) == [{"file_ids": ["f1"]}]
    assert asyncio.run(watch(first, second)) == []


def test_a_record_that_fails_is_written_later_and_ends_nothing(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    store_file(emulator)

    async def watch() -> list[Any]:
        store = Store()
        store.away = True
        running = Running(trigger(["f1"], store))
        await running.until(lambda: "Could not record" in caplog.text)
        store.away = False
        await running.until(lambda: store.values)
        return await running.kill()

    assert asyncio.run(watch()) == [{"file_ids": ["f1"]}]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_no_error_ends_the_watch(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(waiting, "_PERMANENT_ERROR_PAUSE", 0.1)
    store_file(emulator)
    emulator.fault("status", status=status, times=5)

    async def watch() -> list[Any]:
        running = Running(trigger(["f1"]))
        await running.until(lambda: running.events)
        return await running.kill()

    assert asyncio.run(watch()) == [{"file_ids": ["f1"]}]


def test_a_connection_that_is_mended_is_picked_up(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_PERMANENT_ERROR_PAUSE", 0.1)
    monkeypatch.setattr(shared_connection, "RETRY_SECONDS", 0.1)
    store_file(emulator)
    good = BaseHook.get_connection("cloudstore_default")
    assert good.host
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection("ftp://x", "a-token-of-its-own"))

    async def watch() -> list[Any]:
        running = Running(trigger(["f1"]))
        await asyncio.sleep(0.3)
        assert running.events == []
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        await running.until(lambda: running.events)
        return await running.kill()

    assert asyncio.run(watch()) == [{"file_ids": ["f1"]}]


def test_an_error_of_one_file_does_not_hold_the_others_up(emulator: Emulator) -> None:
    emulator.fault("status", status=400, times=1)  # of one of the two: a minute until its next poll

    async def watch() -> list[Any]:
        running = Running(trigger(["f1", "f2"]))
        await running.until(lambda: emulator.state()["requests"].get("link", 0) > 4)
        for file_id in ("f1", "f2"):
            await asyncio.to_thread(store_file, emulator, file_id=file_id)
        await running.until(lambda: running.events)
        return await running.kill()

    assert len(asyncio.run(watch())) == 1


@pytest.mark.parametrize("error", [401, 404, 429])
def test_every_path_sleeps(emulator: Emulator, error: int) -> None:
    emulator.fault("status", status=error, times=0)

    async def watch() -> None:
        running = Running(trigger(["f1"], interval=0.2))
        await running.until(lambda: emulator.state()["requests"].get("link"))
        await asyncio.sleep(1)
        await running.kill()

    asyncio.run(watch())
    assert 1 <= emulator.state()["requests"]["link"] <= 9


@pytest.mark.parametrize(
    "given",
    [
        *({"file_ids": file_ids} for file_ids in ("f1", b"f1", None, 7, [], [f"f{number}" for number in range(1001)])),
        *({"poll_interval": interval} for interval in (0, "30", None, True, 10**400)),
        {"cloudstore_conn_id": ""},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_when_it_is_made(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FileAvailableEventTrigger(**{"file_ids": ["f1"], **given})


@pytest.mark.parametrize("file_id", ["", "None", None, ["f1"], "f" * 5000])
def test_an_id_that_is_none_is_refused_when_it_is_made(file_id: Any) -> None:
    with pytest.raises(InvalidInputError):
        FileAvailableEventTrigger(file_ids=[file_id])
