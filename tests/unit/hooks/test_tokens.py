"""Tokens that are asked for with two keys, against the emulator of a YetiShare site."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks import tokens
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.operators.cloudstore import RemoteUrlBatchUploadOperator
from tests.support import context


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    monkeypatch.setattr(tokens, "_accounts", {})
    with Emulator(service="yetishare") as emulator:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", emulator.connection)
        yield emulator


def asked(site: Emulator) -> int:
    return int(site.state()["requests"].get("authorize", 0))


def end_token(site: Emulator) -> None:
    """As another task does that asks for one."""
    site.call(lambda service: setattr(service, "access_token", "of another task"))


def test_all_hooks_of_a_process_share_one_token(site: Emulator) -> None:
    file_id = site.put_file(b"x", "7")

    async def link() -> str:
        async with CloudStoreAsyncHook() as hook:
            return (await hook.create_download_link(file_id)).token

    with CloudStoreHook() as first, CloudStoreHook() as second:
        assert first.upload_from_url("https://example.com/a", {"folder_id": ""}).file_id == ""
        assert second.create_download_link(file_id).token
    assert asyncio.run(link())
    assert asked(site) == 1


REFUSED = {"_status": "error", "response": "Could not validate access_token and account_id, please reauthenticate or try again."}


@pytest.mark.parametrize("times", [1, 3])
def test_a_token_that_other_tasks_have_ended_is_replaced_up_to_three_times(site: Emulator, times: int) -> None:
    file_id = site.put_file(b"x", "7")
    site.fault("status", status=200, body=json.dumps(REFUSED), operation="link", times=times)
    with CloudStoreHook() as hook:
        assert hook.create_download_link(file_id).token
    assert asked(site) == 1 + times


def test_a_token_that_is_refused_for_ever_ends_the_call_after_three_new_ones(site: Emulator) -> None:
    site.fault("status", status=200, body=json.dumps(REFUSED), operation="link", times=0)
    with CloudStoreHook() as hook, pytest.raises(exceptions.AuthenticationError):
        hook.create_download_link("7")
    assert (site.state()["requests"]["link"], asked(site)) == (4, 4)


def test_wrong_keys_are_tried_once_by_a_process_and_are_permanent(site: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = json.loads(site.connection) | {"password": "w" * 64}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(wrong))

    async def poll() -> Any:
        async with CloudStoreAsyncHook() as hook:
            return await hook.create_download_link("7")

    for _ in range(3):
        with CloudStoreHook() as hook, pytest.raises(exceptions.ConfigurationError, match="gave no access token") as failed:
            hook.upload_from_url("https://example.com/a")
        assert "w" * 64 not in str(failed.value)
    with pytest.raises(exceptions.ConfigurationError):
        asyncio.run(poll())
    assert asked(site) == 1
    works, message = CloudStoreHook().test_connection()
    assert not works
    assert "login and password" in message


def test_a_connection_that_could_not_be_used_is_no_refusal_of_its_keys(site: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    file_id = site.put_file(b"x", "7")
    with monkeypatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
        with CloudStoreHook() as hook, pytest.raises(exceptions.ConfigurationError, match="CA bundle"):
            hook.create_download_link(file_id)
    with CloudStoreHook() as hook:
        assert hook.create_download_link(file_id).token


def test_threads_that_are_refused_together_ask_for_one_token(site: Emulator) -> None:
    file_id = site.put_file(b"x", "7")
    with CloudStoreHook() as hook:
        hook.create_download_link(file_id)
        end_token(site)
        with ThreadPoolExecutor(8) as pool:
            links = list(pool.map(lambda _: hook.create_download_link(file_id).token, range(8)))
    assert len(links) == 8
    assert asked(site) == 2


def test_a_batch_survives_the_end_of_its_token_and_sends_its_parameters(site: Emulator) -> None:
    folder_id = site.make_folder("901")
    CloudStoreHook().read_settings()
    end_token(site)
    batch = RemoteUrlBatchUploadOperator(
        task_id="t",
        urls=[f"https://example.com/{number}" for number in range(20)],
        receipts=None,
        parameters={"folder_id": folder_id},
    )
    assert batch.execute(context())["queued"] == 20
    assert {one["folder_id"] for one in site.state()["files"]} == {folder_id}
    assert asked(site) == 2


def test_neither_token_nor_key_nor_account_is_logged(site: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    end_token(site)
    with CloudStoreHook() as hook, pytest.raises(exceptions.NotFoundError) as failed:
        hook.create_download_link("404")
    login = json.loads(site.connection)
    secrets = (site.access_token, login["login"], login["password"], "158642")
    assert asked(site) >= 1
    assert not [secret for secret in secrets if secret in caplog.text + str(failed.value)]
