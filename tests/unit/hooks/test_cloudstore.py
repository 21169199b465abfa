from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pendulum
import pytest
import requests
import requests_mock
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.emulator.runner import Emulator, airflow_connection
from airflow_provider_cloudstore.hooks import asynchronous, connection
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreAsyncHook, CloudStoreHook
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret, printed_forms
from airflow_provider_cloudstore.protocol.settings import EXTRA_KEYS
from airflow_provider_cloudstore.provider_info import CONN_FIELDS
from tests.support import error_envelope, eventually, store_file

HOST = "https://files.example.com"
DELETE, UPLOAD, LINK = (HOST + one.path for one in (DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK))


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps({"conn_type": "cloudstore", **fields}))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[requests_mock.Mocker]:
    """Mocks the requests to the connection's host, where no test needs a service that remembers."""
    connect(monkeypatch, host=HOST, password="s3cret")
    with requests_mock.Mocker() as mocker:
        yield mocker


def test_the_three_operations_do_what_they_say(emulator: Emulator) -> None:
    source = f"{emulator.url}/_emulator/state?sig=hunter2"
    with CloudStoreHook() as hook:
        upload = hook.upload_from_url(source)
        assert isinstance(upload.response, dict)
        file_id = upload.response["data"]["file_id"]
        eventually(lambda: emulator.state()["files"][0]["state"] == "stored")
        link = hook.create_download_link(file_id)
        assert link.token == emulator.state()["tokens"][0]["token"]
        assert link.url_with_token == f"{emulator.url}/download?download_token={link.token}"
        hook.delete_folder("staging")
    state = emulator.state()
    assert state["files"] == state["tokens"] == state["folders"] == []
    assert state["requests"] == {"upload": 1, "link": 1, "delete": 1}


@pytest.mark.parametrize(
    ("method", "subject", "name"),
    [
        ("delete_folder", None, "delete folder"),
        ("upload_from_url", "file:///x", "remote upload"),
        ("create_download_link", "", "download link"),
    ],
)
def test_a_refused_value_names_the_operation_and_costs_no_airflow_retry_and_no_request(
    service: requests_mock.Mocker, method: str, subject: Any, name: str
) -> None:
    with pytest.raises(exceptions.InvalidInputError, match=f"^{name}: ") as refused:
        getattr(CloudStoreHook(), method)(subject)
    assert refused.value.operation == name
    assert isinstance(refused.value, AirflowFailException)
    assert not service.called


def test_a_permanent_error_is_also_an_airflow_fail_exception_with_its_data(service: requests_mock.Mocker) -> None:
    service.get(LINK, status_code=400, text="Could not read the id")
    with pytest.raises(exceptions.BadRequestError, match="Could not read the id") as failed:
        CloudStoreHook().create_download_link("f1")
    assert isinstance(failed.value, AirflowFailException)
    assert (failed.value.status, failed.value.subject) == (400, "f1")
    assert f"{exceptions.__name__}.BadRequestError: " in "".join(traceback.format_exception(failed.value))


def test_a_passing_error_is_left_to_airflows_retries(service: requests_mock.Mocker) -> None:
    service.post(DELETE, json={"_status": "error", "response": "busy"})
    with pytest.raises(exceptions.ServiceError, match="busy") as failed:
        CloudStoreHook().delete_folder("staging")
    assert not isinstance(failed.value, AirflowFailException)


def test_an_unknown_outcome_is_permanent_unless_the_caller_opted_in(service: requests_mock.Mocker) -> None:
    upload = service.post(UPLOAD, [{"exc": requests.ReadTimeout}, {"exc": requests.ReadTimeout}, {"json": {"data": {}}}])
    hook = CloudStoreHook()
    with pytest.raises(exceptions.OutcomeUnknownError) as failed:
        hook.upload_from_url("ftp://127.0.0.1:9/f")
    assert isinstance(failed.value, AirflowFailException)
    assert hook.upload_from_url("ftp://127.0.0.1:9/f", retry_unknown_outcome=True).response
    assert upload.call_count == 3


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
    hook.upload_from_url("https://u:p%2Bw@h/f?sig=x%2Fyz12345")
    connect(monkeypatch, host=emulator.url, password=token, extra={"proxy": proxy})
    assert CloudStoreHook().settings
    for secret in (token, link.token, "p+w", "p%2Bw", "x/yz12345", "x%2Fyz12345", "proxy/pass"):
        assert set(printed_forms(Secret(secret))) <= set(masked)


def test_a_connection_test_says_in_plain_words_what_it_proved(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    fine, words = CloudStoreHook().test_connection()
    assert fine
    assert words == "The connection works: the service accepts the token (the requested file does not exist)."
    for fault in (error_envelope("invalid token"), {"kind": "status", "status": 400, "body": '{"message": "invalid token"}'}):
        emulator.fault(**fault, operation="link", times=2)
        fine, words = CloudStoreHook().test_connection()
        assert not fine
        assert "invalid token" in words
        assert "does not exist, set extra 'not_found_pattern' to match it." in words
        fields = {"host": emulator.url, "password": emulator.access_token}
        connect(monkeypatch, **fields, extra={"not_found_pattern": "invalid token"})
        assert CloudStoreHook().test_connection()[0]
        connect(monkeypatch, **fields)
    page: dict[str, Any] = {"kind": "status", "status": 404, "headers": {"Content-Type": "text/html"}, "body": "Not Found"}
    emulator.fault(**page, operation="link")
    assert not CloudStoreHook().test_connection()[0]
    store_file(emulator, file_id="airflow-connection-test")
    assert CloudStoreHook().test_connection() == (True, "The connection works: the service accepts the token.")
    connect(monkeypatch, host=emulator.url, password="wrong-token")
    fine, words = CloudStoreHook().test_connection()
    assert not fine
    assert "password" in words
    connect(monkeypatch, host="http://127.0.0.1:9", password="token")
    fine, words = CloudStoreHook().test_connection()
    assert not fine
    assert "connection refused" in words
    connect(monkeypatch, host="ftp://x", password="token")
    fine, words = CloudStoreHook().test_connection()
    assert not fine
    assert "the scheme 'ftp'.\nSet the host to the base URL, such as https://" in words


def test_a_connection_test_says_what_is_odd_about_a_connection_that_works(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, host=emulator.url, password=emulator.access_token, extra={"owner": "me"})
    fine, words = CloudStoreHook().test_connection()
    assert fine
    assert "\nThe connection has the unknown extra 'owner'. Valid extras: " in words


# Airflow tests what its form shows under an id of its own making.
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"password": "wrong-token"},
        {"host": "http://127.0.0.1:9"},
        {"host": ""},
        {"extra": {"owner": "me"}},
        {"conn_type": "http"},
    ],
    ids=str,
)
def test_a_connection_test_never_names_the_temporary_id_of_airflow(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    fields = {"conn_type": "cloudstore", "host": emulator.url, "password": emulator.access_token, **change}
    monkeypatch.setenv("AIRFLOW_CONN_ISFYFHQR", json.dumps(fields))
    hook = CloudStoreHook("isfYFHQr")
    works, words = hook.test_connection()
    assert works is (not change or change.keys() == {"conn_type"} or "owner" in str(change))
    assert "isfyfhqr" not in words.lower()
    assert "''" not in words
    if change == {"password": "wrong-token"}:  # whoever uses the hook afterwards is told which connection
        with pytest.raises(exceptions.AuthenticationError, match="isfYFHQr"):
            hook.create_download_link("f1")


def test_a_refused_token_names_its_connection_and_the_address(service: requests_mock.Mocker) -> None:
    service.post(UPLOAD, status_code=401)
    where = re.escape(f"(connection 'cloudstore_default' at {HOST})")
    with pytest.raises(exceptions.AuthenticationError, match=f"HTTP 401: the service refused the access token {where}"):
        CloudStoreHook().upload_from_url("https://source.example/f")


@pytest.mark.parametrize("status", [500, 429, 403, 401])
def test_a_connection_test_asks_once(service: requests_mock.Mocker, status: int) -> None:
    link = service.get(LINK, status_code=status)
    assert not CloudStoreHook().test_connection()[0]
    assert link.call_count == 1


def test_a_connection_test_ends_within_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connect(monkeypatch, host=f"http://127.0.0.1:{silent.getsockname()[1]}", password="token", extra={"timeout": 0.5})
        began = time.monotonic()
        works, words = CloudStoreHook().test_connection()
    assert not works
    assert re.search(r"no complete response within 0\.(5|49\d*) s", words)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(("status", "kind"), [(404, "text/html"), (400, "text/plain")])
def test_a_web_page_does_not_prove_that_the_service_answered(service: requests_mock.Mocker, status: int, kind: str) -> None:
    service.get(LINK, status_code=status, headers={"Content-Type": kind}, text="<html><body>nginx</body></html>")
    fine, words = CloudStoreHook().test_connection()
    assert not fine
    assert words.startswith(f"connection test: HTTP {status}")
    assert words.endswith("Check that the connection's host is the base URL: the part before /cloud/api/v2.")


UNUSABLE: list[dict[str, Any]] = [
    {"extra": [1]},
    {"extra": {"proxy": "socks5://u:hunter2x@p:1"}},
    {"host": "u:hunter2x@h"},
    {"password": "hunter2x token"},
]


@pytest.mark.parametrize("fields", UNUSABLE, ids=str)
def test_both_hooks_refuse_a_connection_that_cannot_be_used(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, **{"host": "files.example.com", "password": "hunter2x", **fields})
    if version("apache-airflow").startswith(("3.0.", "3.1.")) and not isinstance(fields.get("extra", {}), dict):
        # Airflow itself reads no such connection from the environment.
        with pytest.raises(exceptions.ConfigurationError, match="cannot parse the environment variable"):
            CloudStoreHook().delete_folder("d1")
        return
    with pytest.raises(exceptions.ConfigurationError, match=r"^connection 'cloudstore_default': ") as blocking:
        CloudStoreHook().delete_folder("d1")

    async def enter() -> None:
        async with CloudStoreAsyncHook():
            raise AssertionError

    with pytest.raises(exceptions.ConfigurationError) as asynchronous:
        asyncio.run(enter())
    assert str(blocking.value) == str(asynchronous.value)
    assert isinstance(blocking.value, AirflowFailException)
    assert isinstance(asynchronous.value, AirflowFailException)
    assert "hunter2x" not in str(blocking.value)


def test_both_hooks_warn_of_another_type_and_of_a_misspelt_extra(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(CloudStoreHook, "log", logging.getLogger("test"))  # Airflow's own does not propagate
    connect(monkeypatch, conn_type="http", host="files.example.com", password="token", extra={"owner": "me", "timeout": 6})
    assert CloudStoreHook().settings.timeout == 6
    blocking = [record.getMessage() for record in caplog.records if record.name == "test"]
    caplog.clear()

    async def enter() -> None:
        async with CloudStoreAsyncHook():
            pass

    asyncio.run(enter())
    assert blocking == [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert "has the type 'http', not 'cloudstore'" in blocking[0]
    assert "Connection 'cloudstore_default' has the unknown extra 'owner'." in blocking[1]


def test_the_connection_form_offers_every_extra_and_nothing_else() -> None:
    assert not [f"provider_info.py needs a field '{key}' in CONN_FIELDS" for key in EXTRA_KEYS - CONN_FIELDS.keys()]
    assert CONN_FIELDS.keys() <= EXTRA_KEYS


def test_the_form_of_older_airflows_is_made_of_the_provider_info() -> None:
    assert CloudStoreHook.get_ui_field_behaviour()["relabeling"] == {"host": "Base URL", "password": "Access token"}
    assert CloudStoreHook.get_ui_field_behaviour().keys() == {"hidden_fields", "relabeling", "placeholders"}
    assert CloudStoreHook.get_ui_field_behaviour()["placeholders"]["port"].startswith("443 ")
    try:
        import flask_appbuilder  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError):
            CloudStoreHook.get_connection_form_widgets()
    else:
        widgets = CloudStoreHook.get_connection_form_widgets()
        assert widgets.keys() == EXTRA_KEYS


def test_threads_that_share_a_hook_never_take_each_others_answers(emulator: Emulator) -> None:
    names = [f"f{number}" for number in range(8)]
    for name in names:
        store_file(emulator, file_id=name)
    emulator.fault("delay", seconds=0.005, times=0)

    def ask(name: str) -> list[str]:
        return [hook.create_download_link(name).token for _ in range(4)]

    with CloudStoreHook() as hook, ThreadPoolExecutor(len(names)) as threads:
        tokens = dict(zip(names, threads.map(ask, names), strict=True))
    given = {token["token"]: token["file_id"] for token in emulator.state()["tokens"]}
    assert {given[token] for token in tokens["f0"]} == {"f0"}
    assert all({given[token] for token in found} == {name} for name, found in tokens.items())


def test_a_hook_registers_the_secrets_of_the_first_links_and_source_urls_only(
    service: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.post(UPLOAD)
    masked: list[str] = []
    monkeypatch.setattr(connection, "mask_secret", masked.append)
    with CloudStoreHook() as hook:
        for number in range(60):
            hook.upload_from_url(f"ftp://127.0.0.1:9/f?sig=secret-value-{number:02}")
    assert "secret-value-00" in masked
    assert "secret-value-59" not in masked


def test_an_async_hook_registers_as_many_and_says_so(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    masked: list[str] = []

    async def amask(secrets: Any) -> None:
        masked.extend(secret.reveal() for secret in secrets)

    monkeypatch.setattr(asynchronous, "amask", amask)
    monkeypatch.setattr(CloudStoreAsyncHook, "log", logging.getLogger("test"))
    store_file(emulator)

    async def links() -> list[str]:
        async with CloudStoreAsyncHook() as hook:
            found = await asyncio.gather(*(hook.create_download_link("f1") for _ in range(60)))
        return [link.token for link in found]

    with caplog.at_level(logging.WARNING):
        tokens = asyncio.run(links())
    assert len(set(tokens) & set(masked)) == 50
    assert caplog.text.count("first 50 calls") == 1


def test_an_async_hook_that_was_not_entered_or_was_left_says_how_it_is_used(emulator: Emulator) -> None:
    async def use(hook: CloudStoreAsyncHook) -> None:
        with pytest.raises(RuntimeError, match="async with CloudStoreAsyncHook"):
            await hook.create_download_link("f1")

    async def leave() -> None:
        async with CloudStoreAsyncHook() as hook:
            pass
        await use(hook)

    asyncio.run(use(CloudStoreAsyncHook()))
    asyncio.run(leave())
    assert emulator.state()["requests"] == {}


MISSING = r"connection 'nowhere': it is not defined\.\nAdd it in Admin > Connections .* AIRFLOW_CONN_NOWHERE"


@pytest.mark.parametrize("method", ["delete_folder", "upload_from_url", "create_download_link", "poll_file"])
def test_a_connection_that_is_not_defined_is_permanent_and_says_where_to_define_it(method: str) -> None:
    async def use() -> None:
        async with CloudStoreAsyncHook("nowhere") as hook:
            await getattr(hook, method)("https://h/f")

    for call in (lambda: getattr(CloudStoreHook("nowhere"), method)("https://h/f"), lambda: asyncio.run(use())):
        with pytest.raises(exceptions.ConfigurationError, match=MISSING) as failed:
            call()
        assert isinstance(failed.value, AirflowFailException)
    assert not CloudStoreHook("nowhere").test_connection()[0]


@pytest.mark.parametrize("content", [b"no certificate", None])
@pytest.mark.parametrize("source", ["extra 'verify'", "the environment variable REQUESTS_CA_BUNDLE"])
def test_an_unreadable_ca_bundle_is_an_error_that_names_the_connection_and_the_bundle(
    content: bytes | None, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    if content is not None:
        bundle.write_bytes(content)
    if source == "extra 'verify'":
        connect(monkeypatch, host="files.example.com", password="hunter2x", extra={"verify": str(bundle)})
    else:
        connect(monkeypatch, host="files.example.com", password="hunter2x")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))

    async def delete() -> None:
        async with CloudStoreAsyncHook() as hook:
            await hook.delete_folder("d1")

    link = DownloadLink("f1", "t", "https://files.example.com/f1", pendulum.now(), None)
    message = f"connection 'cloudstore_default': the CA bundle {bundle} cannot be read"
    for use in (
        lambda: CloudStoreHook().delete_folder("d1"),
        lambda: asyncio.run(delete()),
        lambda: CloudStoreHook().download("f1", str(tmp_path / "target"), link=link),
    ):
        with pytest.raises(exceptions.ConfigurationError, match=message) as failed:
            use()
        assert isinstance(failed.value, AirflowFailException)


@pytest.mark.parametrize(
    "value",
    [
        '{"host": "h", "password": "hunter2x"',
        '{"host": "h", "password": "hunter2x", "nope": 1}',
        "cloudstore://x:hunter2x@h:port/",
    ],
)
def test_a_variable_that_airflow_cannot_parse_is_named_and_its_value_is_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", value)

    async def enter() -> None:
        async with CloudStoreAsyncHook():
            pass

    for use in (lambda: CloudStoreHook().settings, lambda: asyncio.run(enter())):
        with pytest.raises(
            exceptions.ConfigurationError, match="cannot parse the environment variable AIRFLOW_CONN_CLOUD"
        ) as failed:
            use()
        assert isinstance(failed.value, AirflowFailException)
        assert "hunter2x" not in "".join(traceback.format_exception(failed.value)) + caplog.text + str(capfd.readouterr())


@pytest.mark.parametrize("proxy", ["", "http://user:hunter2@127.0.0.1:{port}"])
def test_an_unreachable_service_is_named_with_its_proxy_and_without_credentials(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    extra = {"max_attempts": 1, "allow_http": True, "proxy": proxy.format(port=port)}
    connect(monkeypatch, host=f"http://localhost:{port}/base", password="s3cr3t-t0ken", extra=json.dumps(extra))
    with pytest.raises(exceptions.ServiceUnreachableError) as failed:
        CloudStoreHook().delete_folder("d1")
    where = f"http://localhost:{port}/base" + (f" through the proxy http://***@127.0.0.1:{port}" if proxy else "")
    assert f"delete folder 'd1': no connection to the service: connection refused, at {where}." in str(failed.value)
    assert "hunter2" not in str(failed.value)


def test_the_async_hooks_three_operations_do_what_they_say(emulator: Emulator) -> None:
    async def use() -> tuple[str, str]:
        async with CloudStoreAsyncHook() as hook:
            upload = await hook.upload_from_url(f"{emulator.url}/_emulator/state?sig=hunter2")
            assert upload.url == f"{emulator.url}/_emulator/state?***"
            await asyncio.to_thread(eventually, lambda: emulator.state()["files"][0]["state"] == "stored")
            link = await hook.create_download_link(str(upload.file_id))
            assert (await hook.delete_folder("staging")).existed is True
            return link.token, str(link.url_with_token)

    token, url = asyncio.run(use())
    assert url == f"{emulator.url}/download?download_token={token}"
    state = emulator.state()
    assert state["files"] == state["folders"] == []
    assert state["effects"] == {"upload": 1, "link": 1, "delete": 1}
