"""Reads are counted: however many hooks of an event loop use a connection, they read it once."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ParamSpec

import pytest

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.compat import get_async_connection
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.exceptions import ConfigurationError
from airflow_provider_cloudstore.hooks import connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import SharedConnection, mask, shared_connection
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink
from tests.support import settings, store_file

P = ParamSpec("P")
USERS = 20


class Source:
    """Where the connection is: counts its reads, each of which takes until :attr:`delay` is over."""

    def __init__(self) -> None:
        self.reads = 0
        self.token = "first"
        self.protected = frozenset[str]()
        self.error: Exception | None = None
        self.delay: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0.01)

    async def read(self, conn_id: str, _: Secret | None = None) -> tuple[Settings, list[str]]:
        self.reads += 1
        token, error = self.token, self.error  # as they are when the read begins
        await self.delay()
        if error:
            raise error
        return settings(token=token, protected_folder_ids=self.protected), []


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    source = Source()
    monkeypatch.setattr(connection, "read_connection_async", source.read)
    return source


def read_uri(monkeypatch: pytest.MonkeyPatch, uri: str) -> tuple[Settings, list[str]]:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", uri)
    return connection.read_connection("cloudstore_default", CloudStoreHook.get_connection)


def on_an_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def token_of(user: SharedConnection) -> str:
    return (await user.settings()).access_token.reveal()


async def settle() -> None:
    """Let what runs in the background finish."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


@on_an_event_loop
async def test_users_share_one_read_also_of_what_cannot_be_read_and_each_connection_has_its_own(source: Source) -> None:
    async def use(conn_id: str) -> set[str]:
        users = [shared_connection(conn_id) for _ in range(USERS)]
        found = await asyncio.gather(*map(token_of, users), return_exceptions=True)
        return {str(one) for one in found}

    assert await use("a") | await use("b") == {"first"}
    source.error = ConfigurationError("no")
    assert await use("c") == {str(source.error)}
    assert source.reads == 3


@on_an_event_loop
async def test_after_a_rejection_it_is_read_at_once_and_once_for_all(source: Source) -> None:
    user = shared_connection("c")
    rejected, source.token = await user.settings(), "second"
    found = await asyncio.gather(*(user.after_rejection(rejected.access_token) for _ in range(USERS)))
    assert {one.access_token.reveal() for one in found} == {"second"}
    assert (await user.after_rejection(rejected.access_token)).access_token.reveal() == "second"  # who comes late
    assert await token_of(user) == "second"
    assert source.reads == 2


@on_an_event_loop
async def test_a_cancelled_first_reader_does_not_take_the_others_with_it(source: Source) -> None:
    first = asyncio.create_task(token_of(shared_connection("c")))
    await asyncio.sleep(0)
    others = [asyncio.create_task(token_of(shared_connection("c"))) for _ in range(USERS)]
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert {await other for other in others} == {"first"}
    assert source.reads == 1


@on_an_event_loop
async def test_each_token_rotated_under_a_crowd_of_hooks_costs_one_read_and_is_masked_and_warned_of_once(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads, masked, tokens = list[str](), list[str](), ["second-token", "third-token"]

    async def read(conn_id: str) -> Any:
        reads.append(conn_id)
        return await get_async_connection(conn_id)

    async def note(secret: str) -> None:
        masked.append(secret)

    monkeypatch.setattr(connection, "get_async_connection", read)
    monkeypatch.setattr(compat, "amask_secret", note)
    store_file(emulator)

    def rotate(token: str) -> None:
        emulator.call(lambda service: setattr(service, "access_token", token))
        rotated = {**json.loads(airflow_connection(emulator.url, token)), "extra": {"owner": "me"}}
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(rotated))

    async with AsyncExitStack() as stack:
        hooks = await asyncio.gather(*(stack.enter_async_context(CloudStoreAsyncHook()) for _ in range(USERS)))
        await asyncio.gather(*(hook.poll_file("f1") for hook in hooks))
        assert len(reads) == 1
        for token in tokens:
            rotate(token)
            assert {type(link) for link in await asyncio.gather(*(hook.poll_file("f1") for hook in hooks))} == {DownloadLink}
    assert len(reads) == 3
    assert [masked.count(token) for token in tokens] == [1, 1]
    assert emulator.state()["requests"] == {"link": 5 * USERS}  # two fifths of them were rejected
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
    found, _ = read_uri(monkeypatch, uri)
    assert (found.base_url, found.access_token.reveal(), found.max_attempts) == (base_url, "T", 4)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://:hunter2@files.example.com", 'exposes the token in transit.*extra "allow_http": true'),
        ("cloudstore://:hunter2@files.example.com/prefix", "the path\\).*write the prefix as %2Fprefix"),
        ("cloudstore://ftp://:hunter2@files.example.com", "ftp://files.example.com has the scheme 'ftp'"),
        ("CLOUDSTORE://https://:hunter2@files.example.com", "cloudstore://https contradicts the connection's schema"),
        ("cloudstore://hunter2@files.example.com", "no password.*in a URI: cloudstore://:TOKEN@files.example.com"),
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
