"""Reads are counted: however many hooks of an event loop use a connection, they read it once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest

from airflow_provider_cloudstore import compat
from airflow_provider_cloudstore.compat import get_async_connection
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.exceptions import ConfigurationError, InvalidInputError
from airflow_provider_cloudstore.hooks import connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.hooks.connection import RENEW_SECONDS, SharedConnection, mask, shared_connection
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from airflow_provider_cloudstore.results import DownloadLink
from tests.support import settings, store_file

P = ParamSpec("P")
USERS = 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time as the module sees it."""
    own: Any = SimpleNamespace(now=1000.0, monotonic=lambda: own.now)
    monkeypatch.setattr(connection, "time", own)
    return own


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
async def test_one_in_use_is_renewed_in_the_background_once_a_minute_and_an_unused_one_is_forgotten(
    source: Source, clock: Any
) -> None:
    users = [shared_connection("c") for _ in range(USERS)]
    assert {await token_of(user) for user in users} == {"first"}
    source.token = "second"
    for passed, reads in ((RENEW_SECONDS - 1, 1), (1, 2)):
        clock.now += passed
        assert {await token_of(user) for user in users} == {"first"}  # nobody waits for it
        await settle()
        assert source.reads == reads
    kept = await users[0].settings()
    clock.now += RENEW_SECONDS
    await token_of(users[0])
    await settle()
    assert await users[0].settings() is kept  # and with it its HTTP session
    assert {await token_of(user) for user in users} == {"second"}
    users.clear()
    source.token = "last"
    assert await token_of(shared_connection("c")) == "last"
    assert source.reads == 4


@pytest.mark.parametrize("error", [ConfigurationError("it is not defined"), OSError("the database is away")], ids=repr)
@on_an_event_loop
async def test_a_renewal_that_fails_changes_nothing_and_is_logged_once(
    source: Source, clock: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    users = [shared_connection("c") for _ in range(USERS)]
    await token_of(users[0])
    source.error = error
    clock.now += RENEW_SECONDS
    for _ in range(3):
        assert {await token_of(user) for user in users} == {"first"}
        await settle()
    (line,) = [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert line.startswith("Connection 'c' could not be read again (")
    assert source.reads == 2


@on_an_event_loop
async def test_a_folder_that_is_protected_while_a_hook_is_open_is_not_deleted(source: Source, clock: Any) -> None:
    async with CloudStoreAsyncHook() as hook:
        source.protected = frozenset({"finance"})
        clock.now += RENEW_SECONDS
        await hook.poll_file("f1")  # renews what all hooks share
        await settle()
        with pytest.raises(InvalidInputError, match="is protected"):
            await hook.delete_folder("finance")


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
async def test_a_read_that_began_before_the_rejection_does_not_prove_that_the_token_is_the_same(
    source: Source, clock: Any
) -> None:
    user = shared_connection("c")
    rejected = await user.settings()
    goes_on = asyncio.Event()
    source.delay = goes_on.wait
    clock.now += RENEW_SECONDS
    await user.settings()  # renews, and reads the old token
    await asyncio.sleep(0)
    source.token = "second"
    waiting = [asyncio.create_task(user.after_rejection(rejected.access_token)) for _ in range(USERS)]
    await asyncio.sleep(0)
    goes_on.set()
    assert {found.access_token.reveal() for found in await asyncio.gather(*waiting)} == {"second"}
    assert source.reads == 3


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
        rotated = airflow_connection(emulator.url, token).replace('"cloudstore"', '"http"')
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", rotated)

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
    assert len([warning for warning in warnings if "has the type 'http'" in warning]) == len(warnings) == 2


@pytest.mark.parametrize(
    ("uri", "base_url"),
    [
        ("cloudstore://https://:T@files.example.com/prefix", "https://files.example.com/prefix"),
        ("cloudstore://https://:T@files.example.com:8443/a/b%20c/?max_attempts=4", "https://files.example.com:8443/a/b%20c"),
        ("cloudstore://:T@files.example.com/prefix", "https://files.example.com/prefix"),
        ("cloudstore://:T@files.example.com:8443/https", "https://files.example.com:8443"),
        ("cloudstore://:T@https%3A%2F%2Ffiles.example.com%3A8443%2Fprefix", "https://files.example.com:8443/prefix"),
        ("cloudstore://:T@files.example.com%2Fprefix?max_attempts=4", "https://files.example.com/prefix"),
        ("cloudstore://:T@files.example.com/?__extra__=%7B%22max_attempts%22%3A+4%7D", "https://files.example.com"),
        ("http://:T@127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTP://:T@127.0.0.1:8080/prefix", "http://127.0.0.1:8080/prefix"),
        ("https://:T@files.example.com/prefix", "https://files.example.com/prefix"),
        ("http://:T@files.example.com/https", "https://files.example.com"),
        ("http://https://:T@files.example.com/prefix", "https://files.example.com/prefix"),
        ("cloudstore+http://:T@localhost:8080", "http://localhost:8080"),
        ("cloudstore-http://:T@localhost:8080", "http://localhost:8080"),
        ("cloudstore://http://:T@[::1]:8080/prefix", "http://[::1]:8080/prefix"),
    ],
)
def test_every_part_of_a_connection_uri_is_honoured(monkeypatch: pytest.MonkeyPatch, uri: str, base_url: str) -> None:
    found, _ = read_uri(monkeypatch, uri)
    assert (found.base_url, found.access_token.reveal(), found.max_attempts) == (base_url, "T", 4)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://:hunter2@files.example.com", 'exposes the token in transit.*extra "allow_http": true'),
        ("cloudstore://ftp://:hunter2@files.example.com/prefix", "ftp://files.example.com has the scheme 'ftp'"),
        ("CLOUDSTORE://https://:hunter2@files.example.com/prefix", "has the scheme 'cloudstore'"),
        ("cloudstore://hunter2@files.example.com", "no password.*in a URI: cloudstore://:TOKEN@files.example.com"),
    ],
)
def test_a_part_of_a_connection_uri_that_would_be_lost_is_an_error_that_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){says}") as refused:
        read_uri(monkeypatch, uri)
    assert "hunter2" not in str(refused.value)


def test_a_login_is_told_not_to_be_used_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    _, warnings = read_uri(monkeypatch, "cloudstore://me2:T@host")
    assert warnings == ["has a login, which is not used: extra 'authorize' is not set"]


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


def test_masking_pauses_with_a_warning_while_it_has_taken_longer_than_the_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, masked = [0.0], list[str]()

    def mask_slowly(secret: str) -> None:
        clock[0] += 6.0
        masked.append(secret)

    monkeypatch.setattr("airflow_provider_cloudstore.hooks.connection.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(connection, "mask_secret", mask_slowly)
    limit = connection.MaskingLimit()
    for number in range(5):
        limit.mask([Secret(f"secret-of-call-{number}")])
    assert masked == [f"secret-of-call-{number}" for number in range(3)]
    assert caplog.text.count("do not log or print them") == 1
    clock[0] += 60.0  # of calls
    limit.mask([Secret("secret-of-a-later-call")])
    assert masked[-1] == "secret-of-a-later-call"
