from __future__ import annotations

import asyncio
import threading
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from airflow_provider_cloudstore import compat

AIRFLOW = Version(version("apache-airflow"))
MASKS_ON_EVENT_LOOPS = Version("3.3.2") <= AIRFLOW


def test_on_an_event_loop_a_connection_is_read_in_a_thread_before_airflow_can_mask_its_secrets_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_by: list[threading.Thread] = []

    def read(conn_id: str) -> Any:
        read_by.append(threading.current_thread())
        return SimpleNamespace(conn_id=conn_id)

    async def read_on_the_loop(conn_id: str) -> Any:
        return read(conn_id)

    monkeypatch.setattr(compat.BaseHook, "get_connection", read)
    monkeypatch.setattr(compat.BaseHook, "aget_connection", read_on_the_loop, raising=False)
    assert asyncio.run(compat.get_async_connection("c")).conn_id == "c"
    assert [thread is threading.main_thread() for thread in read_by] == [MASKS_ON_EVENT_LOOPS]


def test_a_secret_is_masked_on_an_event_loop_where_airflow_can(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []

    async def on_the_loop(secret: str) -> None:
        masked.append(secret)

    if MASKS_ON_EVENT_LOOPS:
        monkeypatch.setattr("airflow.sdk.log.amask_secret", on_the_loop)
    monkeypatch.setattr(compat, "mask_secret", masked.append)
    asyncio.run(compat.amask_secret("hunter2"))
    assert masked == (["hunter2"] if AIRFLOW.major == 2 or MASKS_ON_EVENT_LOOPS else [])
