"""Connections whose login and password are exchanged for a token, against the emulator of a YetiShare site."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.support import context


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(service="yetishare") as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator


def asked(site: Emulator) -> int:
    return int(site.state()["requests"].get("authorize", 0))


def end_token(site: Emulator) -> None:
    """As another task does that asks for one."""
    site.call(lambda service: setattr(service, "access_token", "of another task"))


def test_a_hook_asks_for_one_token_and_so_do_all_hooks_of_an_event_loop(site: Emulator) -> None:
    file_id = site.put_file(b"x", "7")

    async def link() -> str:
        async with CloudStoreAsyncHook() as hook:
            return (await hook.create_download_link(file_id)).token

    async def links() -> tuple[str, str]:
        async with CloudStoreAsyncHook():
            return await asyncio.gather(link(), link())

    with CloudStoreHook() as hook:
        assert hook.upload_from_url("https://example.com/a", {"folder_id": ""}).file_id == ""
        assert hook.create_download_link(file_id).token
    assert asked(site) == 1
    assert len(asyncio.run(links())) == 2
    assert asked(site) == 2


def test_downloads_of_an_event_loop_share_its_token(site: Emulator, tmp_path: Path) -> None:
    file_id = site.put_file(b"x", "7")

    async def run() -> list[int]:
        async with CloudStoreAsyncHook() as hook:
            files = await asyncio.gather(*(hook.download(file_id, tmp_path / str(number)) for number in range(4)))
        return [file.bytes for file in files]

    assert asyncio.run(run()) == [1] * 4
    assert asked(site) == 1


REFUSED = {"_status": "error", "response": "Could not validate access_token and account_id, please reauthenticate or try again."}


def test_a_token_that_another_task_has_ended_is_replaced(site: Emulator) -> None:
    file_id = site.put_file(b"x", "7")
    site.fault("status", status=200, body=json.dumps(REFUSED), operation="link", times=1)
    with CloudStoreHook() as hook:
        assert hook.create_download_link(file_id).token
    assert asked(site) == 2


def test_a_token_that_is_refused_for_ever_ends_the_call_after_a_new_one(site: Emulator) -> None:
    site.fault("status", status=200, body=json.dumps(REFUSED), operation="link", times=0)
    with CloudStoreHook() as hook, pytest.raises(exceptions.AuthenticationError):
        hook.create_download_link("7")
    assert (site.state()["requests"]["link"], asked(site)) == (2, 2)


def test_wrong_keys_are_tried_once_by_a_call_and_are_permanent(site: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(json.loads(site.connection) | {"password": "w" * 64}))
    with (
        CloudStoreHook() as hook,
        pytest.raises(exceptions.ConfigurationError, match="refused the connection's credentials") as failed,
    ):
        hook.upload_from_url("https://example.com/a")
    assert "w" * 64 not in str(failed.value)
    assert asked(site) == 1
    works, message = CloudStoreHook().test_connection()
    assert not works
    assert "Set the connection's login to the first key" in message


def test_an_account_that_is_not_ready_yet_is_no_connection_that_works(site: Emulator) -> None:
    site.fault("status", status=200, body='{"_status": "success", "state": "pending"}', operation="authorize", times=1)
    works, message = CloudStoreHook().test_connection()
    assert not works
    assert "the response has no access token" in message


def test_threads_that_are_refused_together_ask_for_one_token(site: Emulator) -> None:
    file_id = site.put_file(b"x", "7")
    with CloudStoreHook() as hook:
        for asked_in_all in (1, 2):
            with ThreadPoolExecutor(8) as pool:
                links = list(pool.map(lambda _: hook.create_download_link(file_id).token, range(8)))
            assert len(links) == 8
            assert asked(site) == asked_in_all
            end_token(site)


def test_a_batch_survives_the_end_of_its_token_and_sends_its_parameters(site: Emulator) -> None:
    folder_id = site.make_folder("901")
    expired = {"_status": "error", "response": "Access token expired"}
    site.fault("status", status=200, body=json.dumps(expired), operation="upload", times=1)
    batch = RemoteUrlBatchUploadOperator(
        task_id="t",
        urls=[f"https://example.com/{number}" for number in range(20)],
        receipts=None,
        parameters={"folder_id": folder_id},
    )
    assert batch.execute(context())["queued"] == 20
    assert {one["folder_id"] for one in site.state()["files"]} == {folder_id}
    assert asked(site) == 2


def test_neither_token_nor_key_is_logged(site: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    end_token(site)
    with CloudStoreHook() as hook, pytest.raises(exceptions.NotFoundError) as failed:
        hook.create_download_link("404")
    login = json.loads(site.connection)
    secrets = (site.access_token, login["login"], login["password"])
    assert asked(site) >= 1
    assert not [secret for secret in secrets if secret in caplog.text + str(failed.value)]
