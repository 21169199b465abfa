"""Both clients behind front ends and a forward proxy that people really run.

Slow, and with needs of its own: ``make test-neighbours`` runs it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol import calls
from scripts.processes import free_port
from tests.support import NO_RESPONSE, eventually, store_file
from tests.wire.neighbours.conftest import Run
from tests.wire.neighbours.servers import PROXY_LOGIN, PROXY_PASSWORD, Neighbour, haproxy, nginx, squid

pytestmark = pytest.mark.slow

SOURCE = "https://source.example/file?sig=hunter2"
WORK: dict[str, tuple[str, str]] = {
    "delete": ("delete_folder", "old"),
    "upload": ("upload_from_url", SOURCE),
    "link": ("create_download_link", "f1"),
}


def blocking(method: str, subject: str) -> object:
    with CloudStoreHook() as hook:
        return getattr(hook, method)(subject)


def asynchronous(method: str, subject: str) -> object:
    async def call() -> object:
        async with CloudStoreAsyncHook() as hook:
            return await getattr(hook, method)(subject)

    return asyncio.run(call())


@dataclass(frozen=True)
class Row:
    """A front end before the service.

    :param front_end: runs it, for the service and a port where nothing listens.
    :param ends: how delete, upload and link end: an error, or nothing.
    :param says: what every error says.
    :param fault: what the service itself does, after it has done the work.
    """

    front_end: Callable[[Emulator, int], AbstractContextManager[Neighbour]]
    ends: tuple[str, str, str]
    says: str
    fault: dict[str, Any] = field(default_factory=dict)


LOST = ("", "OutcomeUnknownError", "TransientServiceError")  # a deletion's retry finds no folder, which counts as success
ROWS = {
    "nginx: the service is down": Row(
        lambda _, dead: nginx(f"location / {{ proxy_pass http://127.0.0.1:{dead}; }}"),
        ("TransientServiceError", "OutcomeUnknownError", "TransientServiceError"),
        "HTTP 502",
    ),
    "nginx: the service did the work but responds too late": Row(
        lambda emulator, _: nginx(f"proxy_read_timeout 1s; location / {{ proxy_pass {emulator.url}; }}"),
        LOST,
        "HTTP 504",
        fault=NO_RESPONSE,
    ),
    "haproxy: the connection breaks in the middle of the response": Row(
        lambda emulator, _: haproxy(emulator.url.removeprefix("http://")),
        LOST,
        "the response ended early",
        fault={"kind": "drop_body", "after": 5},
    ),
}


def ends(client: Callable[[str, str], object], operation: str) -> tuple[str, str]:
    """The error of a call, if there is one, and all that is printed of it."""
    try:
        client(*WORK[operation])
    except exceptions.CloudStoreError as error:
        return type(error).__name__, f"{error!s} {error!r} {vars(error)}"
    return "", ""


@pytest.fixture(autouse=True)
def _with_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_INITIAL_BACKOFF", 0.5)


@pytest.mark.parametrize("operation", WORK)
@pytest.mark.parametrize("client", [blocking, asynchronous])
@pytest.mark.parametrize("name", ROWS)
def test_an_upload_that_may_have_arrived_is_unknown_and_what_is_idempotent_is_retried(
    name: str, client: Any, operation: str, emulator: Emulator, run_front_end: Run
) -> None:
    row = ROWS[name]
    store_file(emulator, folder_id="kept")
    emulator.make_folder("old")
    front_end = run_front_end(row.front_end(emulator, free_port()))
    if row.fault:
        emulator.fault(times=0, **row.fault)
    error, shown = ends(client, operation)
    effects = emulator.state()["effects"].get(operation, 0)
    assert error == row.ends[list(WORK).index(operation)], shown
    assert row.says in shown or not error
    assert "hunter2" not in shown
    assert emulator.access_token not in shown
    assert bool(effects) == bool(row.fault)
    if operation == "upload":  # it need not have reached the service, so ask the front end
        assert eventually(lambda: front_end.logged().count("/cloud/api/v2/file/url_upload_add")) == 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    created, bundle = trustme.CA(), tmp_path_factory.mktemp("authority") / "ca.pem"
    created.cert_pem.write_to_path(bundle)
    return created, bundle


@pytest.fixture
def over_tls(authority: tuple[trustme.CA, Path]) -> Iterator[Emulator]:
    """The service with a certificate of a private authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority[0].issue_cert("127.0.0.1").configure_cert(context)
    with Emulator(tls=context) as running:
        store_file(running)
        yield running


@pytest.mark.parametrize("client", [blocking, asynchronous])
@pytest.mark.parametrize(
    ("password", "dead", "expected", "says"),
    [
        (PROXY_PASSWORD, False, "", ""),
        ("0ther-passw0rd", False, "ConfigurationError", "Set extra 'proxy' of the connection to http://user:password@"),
        (PROXY_PASSWORD, True, "ServiceUnreachableError", "the proxy answered HTTP 503 to CONNECT"),
    ],
    ids=["right", "wrong", "dead"],
)
def test_a_call_through_squid_succeeds_or_says_what_to_set(
    client: Any,
    password: str,
    dead: bool,
    expected: str,
    says: str,
    over_tls: Emulator,
    authority: tuple[trustme.CA, Path],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    proxy = run(squid())
    login = f"{PROXY_LOGIN}:{password}"
    extra = {"proxy": f"http://{login}@127.0.0.1:{proxy.port}", "verify": str(authority[1]), "max_attempts": 2}
    host = f"https://127.0.0.1:{free_port()}" if dead else over_tls.url
    connection = json.loads(over_tls.connection) | {"host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))
    for operation in WORK:
        over_tls.make_folder("old")
        error, shown = ends(client, operation)
        assert error == expected, shown
        assert says in shown
        assert over_tls.state()["effects"].get(operation, 0) == (not expected)
        for secret in (over_tls.access_token, password, "hunter2", base64.b64encode(login.encode()).decode()):
            assert secret not in shown + caplog.text
    assert expected or eventually(lambda: "CONNECT" in proxy.logged() and f" {PROXY_LOGIN} " in proxy.logged())
