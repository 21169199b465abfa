"""Uploads by both clients behind front ends that people really run.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from scripts.processes import free_port
from tests.support import eventually
from tests.wire.neighbours.conftest import Run
from tests.wire.neighbours.servers import haproxy, nginx

pytestmark = pytest.mark.slow

SOURCE = "https://source.example/file?sig=hunter2"


def blocking() -> object:
    with CloudStoreHook() as hook:
        return hook.upload_from_url(SOURCE)


def asynchronous() -> object:
    async def call() -> object:
        async with CloudStoreAsyncHook() as hook:
            return await hook.upload_from_url(SOURCE)

    return asyncio.run(call())


@pytest.mark.parametrize("client", [blocking, asynchronous])
@pytest.mark.parametrize(
    ("front_end", "fault", "says"),
    [
        (lambda _: nginx(f"location / {{ proxy_pass http://127.0.0.1:{free_port()}; }}"), {}, "HTTP 502"),
        (lambda url: nginx(f"proxy_read_timeout 1s; location / {{ proxy_pass {url}; }}"), {"kind": "no_response"}, "HTTP 504"),
        (lambda url: haproxy(url.removeprefix("http://")), {"kind": "drop_body", "after": 5}, "the response ended early"),
    ],
    ids=["nginx before a dead service", "impatient nginx", "haproxy"],
)
def test_an_upload_that_may_have_arrived_is_unknown_and_is_not_resent(
    front_end: Any, fault: dict[str, Any], says: str, client: Callable[[], object], emulator: Emulator, run_front_end: Run
) -> None:
    running = run_front_end(front_end(emulator.url))
    if fault:
        emulator.fault(times=0, **fault)
    with pytest.raises(exceptions.OutcomeUnknownError, match=says):
        client()
    assert bool(emulator.state()["effects"]) == bool(fault)
    # It need not have reached the service, so ask the front end.
    assert eventually(lambda: running.logged().count("/cloud/api/v2/file/url_upload_add")) == 1
