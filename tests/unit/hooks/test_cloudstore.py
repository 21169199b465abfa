from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import requests_mock

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.exceptions import TASK_ENDED
from airflow_provider_cloudstore.hooks import connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms
from airflow_provider_cloudstore.protocol.settings import EXTRAS
from airflow_provider_cloudstore.results import DownloadLink
from tests.support import connect, store_file

HOST = "https://files.example.com"
UPLOAD, LINK = (f"{HOST}/cloud/api/v2{one.path}" for one in (UploadFromUrl, CreateDownloadLink))


async def poll() -> DownloadLink | exceptions.CloudStoreError:
    async with CloudStoreAsyncHook() as hook:
        return await hook.poll_file("f1")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[requests_mock.Mocker]:
    """Mocks the requests to the connection's host, where no test needs a service that remembers."""
    connect(monkeypatch, host=HOST, password="s3cret")
    with requests_mock.Mocker() as mocker:
        yield mocker


def test_a_rotated_token_is_picked_up_in_the_middle_of_a_task(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    store_file(emulator)
    with CloudStoreHook() as hook:
        hook.create_download_link("f1")
        emulator.call(lambda service: setattr(service, "access_token", "rotated-token"))
        monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", airflow_connection(emulator.url, "rotated-token"))
        hook.create_download_link("f1")
        hook.create_download_link("f1")
    assert emulator.state()["requests"] == {"link": 4}


def test_every_form_of_every_secret_is_registered_for_masking(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr(connection, "mask_secret", masked.append)
    store_file(emulator)
    token, proxy = "a+b/c=d", "http://proxyuser:proxy%2Fpass@127.0.0.1:9"
    emulator.call(lambda service: setattr(service, "access_token", token))
    connect(monkeypatch, host=emulator.url, password=token)
    hook = CloudStoreHook()
    link = hook.create_download_link("f1")
    polled: Any = hook.poll_file("f1")
    hook.upload_from_url("https://u:p%2Bw@h/f?sig=x%2Fyz12345")
    connect(monkeypatch, host=emulator.url, password=token, extra={"proxy": proxy})
    assert CloudStoreHook().settings
    for secret in (token, link.token, polled.token, "p+w", "p%2Bw", "x/yz12345", "x%2Fyz12345", "proxy/pass"):
        assert set(printed_forms(Secret(secret))) <= set(masked)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_both_hooks_reach_a_service_on_this_machine_without_the_environments_proxy(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALL_PROXY", proxy)
    store_file(emulator)

    assert CloudStoreHook().create_download_link("f1").token
    assert isinstance(asyncio.run(poll()), DownloadLink)


def test_a_hook_warns_of_an_unknown_extra(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(CloudStoreHook, "log", logging.getLogger("test"))  # Airflow's own does not propagate
    connect(monkeypatch, conn_type="http", host="https://a", password="token", extra={"owner": "me", "timeout": 6})
    assert CloudStoreHook().settings.timeout == 6
    assert "Connection 'cloudstore_default' has the unknown extra 'owner'." in caplog.text


def test_the_form_of_older_airflows_offers_every_extra() -> None:
    assert CloudStoreHook.get_ui_field_behaviour().keys() == {"hidden_fields", "relabeling", "placeholders"}
    pytest.importorskip("flask_appbuilder")
    assert CloudStoreHook.get_connection_form_widgets().keys() == EXTRAS.keys()


def test_an_async_hook_that_was_not_entered_or_was_left_says_how_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host=HOST, password="s3cret")

    async def use(hook: CloudStoreAsyncHook) -> None:
        with pytest.raises(RuntimeError, match="async with CloudStoreAsyncHook"):
            await hook.create_download_link("f1")
        async with hook:
            pass
        with pytest.raises(RuntimeError, match="async with CloudStoreAsyncHook"):
            await hook.create_download_link("f1")

    asyncio.run(use(CloudStoreAsyncHook()))


def test_a_poll_in_the_triggerer_is_one_request_even_if_the_service_fails(emulator: Emulator) -> None:
    emulator.fault("status", status=503, times=0)

    assert isinstance(asyncio.run(poll()), exceptions.TransientServiceError)
    assert emulator.state()["requests"] == {"link": 1}


def test_the_async_hook_masks_the_secrets_of_its_calls_and_downloads(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    masked: list[str] = []

    async def amask(secrets: Any) -> None:
        masked.extend(secret.reveal() for secret in secrets)

    async def use() -> str:
        async with CloudStoreAsyncHook() as hook:
            await hook.upload_from_url("ftp://127.0.0.1:9/f?sig=hunter2x")
            assert (await hook.download("f1", tmp_path / "f")).bytes == 5
            return (await hook.create_download_link("f1")).token

    monkeypatch.setattr("airflow_provider_cloudstore.hooks.cloudstore.amask", amask)
    store_file(emulator)
    assert {asyncio.run(use()), "hunter2x"} <= {*masked}


ENVELOPE = {"_status": "error", "response": "no entry"}
WORKS = "The connection works if this is what the service says of a file that does not exist: "


@pytest.mark.parametrize(
    ("answer", "extra", "works", "words"),
    [
        ({"json": {"download_token": "t"}}, {}, True, r"^The connection works: the service creates links\.$"),
        (
            {"status_code": 404, "json": {"error": "no such file"}},
            {},
            True,
            f"^{WORKS}no such file\n",
        ),
        ({"json": ENVELOPE}, {}, False, "no entry.*\n.*extra 'not_found_pattern' must match it."),
        ({"json": ENVELOPE}, {"not_found_pattern": "no entry"}, True, f"^{WORKS}no entry\n"),
        (
            {"status_code": 404, "text": "<html>nginx"},
            {},
            False,
            r"^connection test: HTTP 404 with a web page .*\nCheck that the connection's host",
        ),
        (
            {"status_code": 401},
            {},
            False,
            r"refused the connection's credentials \(at https://files.example.com\)(.|\n)*password",
        ),
        (
            {"status_code": 404, "json": {"error": "no such file"}},
            {"owner": "me"},
            True,
            "\nThe connection has the unknown extra 'owner'",
        ),
        ({"status_code": 503, "headers": {"Retry-After": "0"}}, {}, False, "^connection test: HTTP 503"),
        ({}, {"timeout": "soon"}, False, "extra 'timeout'"),
    ],
)
def test_a_connection_test_says_what_it_proved_with_one_request(
    service: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch, answer: Any, extra: Any, works: bool, words: str
) -> None:
    connect(monkeypatch, host=HOST, password="s3cret", extra=extra)
    link = service.get(LINK, **answer)
    found, message = CloudStoreHook().test_connection()
    assert (found, bool(re.search(words, message))) == (works, True), message
    assert link.call_count <= 1
    assert "cloudstore_default" not in message  # Airflow tests what its form shows under an id of its own making


MISSING = r"it is not defined, or .*\.\nAdd it in Admin > Connections .* AIRFLOW_CONN_NOWHERE"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", MISSING),
        ('{"host": "h", "password": "hunter2x"', MISSING),
        ("cloudstore://x:hunter2x@h:port/", MISSING),
        ('{"host": "h", "password": "hunter2x", "extra": {"proxy": "socks5://u:hunter2x@p:1"}}', "extra 'proxy'"),
        ('{"host": "h", "password": "hunter2x", "extra": {"verify": "/no/ca.pem"}}', "the CA bundle /no/ca.pem cannot be read"),
        ('{"host": "u:hunter2x@h", "password": "hunter2x"}', "host"),
    ],
)
def test_both_hooks_refuse_a_connection_that_airflow_does_not_find_or_that_cannot_be_used(
    value: str, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    if value:
        monkeypatch.setenv("AIRFLOW_CONN_NOWHERE", value)

    async def delete() -> None:
        async with CloudStoreAsyncHook("nowhere") as hook:
            await hook.delete_folder("d1")

    for use in (lambda: CloudStoreHook("nowhere").delete_folder("d1"), lambda: asyncio.run(delete())):
        with pytest.raises(exceptions.CloudStoreError, match=f"^connection 'nowhere': .*{reason}") as failed:
            use()
        assert "hunter2x" not in "".join(traceback.format_exception(failed.value)) + caplog.text + str(capfd.readouterr())
        assert failed.value.permanent is (reason != MISSING)  # Airflow may find it later


@pytest.mark.parametrize("ended", TASK_ENDED)
def test_an_upload_during_which_airflow_ends_the_task_is_unknown(
    service: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch, ended: Any
) -> None:
    service.post(requests_mock.ANY, [{"exc": ended}, {"exc": ended}, {"json": {"file_id": "f1"}}])
    with pytest.raises(ended):
        CloudStoreHook().delete_folder("d1")
    for _ in ("while it is sent", "once the response has arrived"):
        with pytest.raises(exceptions.OutcomeUnknownError, match=f"the task ended with {ended.__name__}"):
            CloudStoreHook().upload_from_url("https://h/f")
        monkeypatch.setattr(UploadFromUrl, "result", Mock(side_effect=ended))
    assert service.call_count == 3
