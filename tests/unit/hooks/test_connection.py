"""Reads are counted: however many hooks of an event loop use a connection, they read it once."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.compat import get_async_connection
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.hooks import cloudstore, connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import mask
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink
from tests.support import store_file

USERS = 20


def read_uri(monkeypatch: pytest.MonkeyPatch, uri: str) -> Settings:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", uri)
    return connection.read_connection("cloudstore_default", CloudStoreHook.get_connection)


def test_a_crowd_of_hooks_reads_the_connection_once_and_once_for_each_rotated_token_which_is_masked_and_warned_of_once(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads, masked, tokens = list[str](), list[str](), ["second-token", "third-token"]

    async def read(conn_id: str) -> Any:
        reads.append(conn_id)
        await asyncio.sleep(0.01)
        return await get_async_connection(conn_id)

    async def note(secret: str) -> None:
        masked.append(secret)

    def rotate(token: str) -> None:
        emulator.call(lambda service: setattr(service, "access_token", token))
        rotated = {**json.loads(airflow_connection(emulator.url, token)), "extra": {"owner": "me"}}
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(rotated))

    async def poll(hooks: list[CloudStoreAsyncHook]) -> None:
        first = asyncio.create_task(hooks[0].poll_file("f1"))
        others = [asyncio.create_task(hook.poll_file("f1")) for hook in hooks[1:]]
        await asyncio.sleep(0)
        first.cancel()  # which does not affect the others
        assert {type(link) for link in await asyncio.gather(*others)} == {DownloadLink}

    async def run() -> None:
        async with AsyncExitStack() as stack:
            hooks = [await stack.enter_async_context(CloudStoreAsyncHook()) for _ in range(USERS)]
            await poll(hooks)
            assert len(reads) <= 2  # that of the cancelled hook, and that of the others
            reads.clear()
            for token in tokens:
                rotate(token)
                assert all(
                    isinstance(link, DownloadLink) for link in await asyncio.gather(*(one.poll_file("f1") for one in hooks))
                )

    monkeypatch.setattr(connection, "get_async_connection", read)
    monkeypatch.setattr(compat, "amask_secret", note)
    store_file(emulator)
    asyncio.run(run())
    assert not cloudstore._clients
    assert len(reads) == 2
    assert [masked.count(token) for token in tokens] == [1, 1]
    warnings = [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert len([warning for warning in warnings if "unknown extra 'owner'" in warning]) == len(warnings) == 2


@pytest.mark.parametrize(
    ("uri", "base_url"),
    [
        ("cloudstore://https://:T@files.example.com:8443?max_attempts=4", "https://files.example.com:8443"),
        ("cloudstore://:T@files.example.com%2Fprefix:8443", "https://files.example.com:8443/prefix"),
        ("cloudstore://:T@files.example.com:8443/https", "https://files.example.com:8443"),
        ("cloudstore://:T@https%3A%2F%2Ffiles.example.com%3A8443%2Fprefix", "https://files.example.com:8443/prefix"),
        ("cloudstore://:T@files.example.com/?__extra__=%7B%22max_attempts%22%3A+4%7D", "https://files.example.com"),
        ("http://:T@127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTP://:T@127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://:T@files.example.com", "https://files.example.com"),
    ],
)
def test_every_part_of_a_connection_uri_is_honoured(monkeypatch: pytest.MonkeyPatch, uri: str, base_url: str) -> None:
    found = read_uri(monkeypatch, uri)
    assert (found.base_url, found.access_token.reveal(), found.max_attempts) == (base_url, "T", 4)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://:hunter2@files.example.com", 'exposes the token in transit.*extra "allow_http": true'),
        ("cloudstore://:hunter2@files.example.com/prefix", "the path\\).*write the prefix as %2Fprefix"),
        ("cloudstore://ftp://:hunter2@files.example.com", "ftp://files.example.com has the scheme 'ftp'"),
        ("CLOUDSTORE://https://:hunter2@files.example.com", "cloudstore://https contradicts the connection's schema"),
        ("cloudstore://hunter2@files.example.com", "no password.*in a URI: cloudstore://:TOKEN@files.example.com"),
        ("cloudstore://:hunter2@h?success_when=%7B%22x%22%3A%22a%22%7D", "only the keys delete, .*not x"),
    ],
)
def test_a_part_of_a_connection_uri_that_would_be_lost_is_an_error_that_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){says}") as refused:
        read_uri(monkeypatch, uri)
    assert "hunter2" not in str(refused.value)


def test_what_holds_a_masked_token_is_not_registered_once_more_unless_it_may_be_too_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masked: list[str] = []
    monkeypatch.setattr(connection, "mask_secret", masked.append)
    mask([Secret("a-token-of-24-characters"), Secret("https://h/d?t=a-token-of-24-characters")])
    assert masked == ["a-token-of-24-characters"]
    masked.clear()
    mask([Secret("short"), Secret("a-short-one")])
    assert masked == ["short", "a-short-one"]
