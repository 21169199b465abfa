"""What is the blocking client's own; what both clients promise is in ``tests/contract``."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests_mock

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.reasons import reason_of
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call, CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import TOKEN, settings, store_file

BASE = "https://files.example.com/prefix"


def perform(call: Call[Any], own: Settings, **more: Any) -> Any:
    with BlockingClient(own, lambda: own) as client:
        return client.perform(call, **more)


@pytest.fixture
def wire() -> Iterator[requests_mock.Mocker]:
    with requests_mock.Mocker(case_sensitive=True) as mocker:
        mocker.register_uri(requests_mock.ANY, requests_mock.ANY, json={"data": {"token": "t"}})
        yield mocker


def sent(wire: requests_mock.Mocker, call_type: type[Call[Any]], subject: str) -> Any:
    own = settings(BASE)
    perform(call_type(subject, own), own)
    assert wire.call_count == 1
    return wire.request_history[0]


@pytest.mark.parametrize(
    ("call_type", "subject", "path", "body"),
    [
        (DeleteFolder, "d 1", "/prefix/cloud/api/v2/folder/delete", b"folder_id=d%201"),
        (UploadFromUrl, "https://h/f?a=b", "/prefix/cloud/api/v2/file/url_upload_add", b"url=https%3A%2F%2Fh%2Ff%3Fa%3Db"),
    ],
)
def test_a_post_is_on_the_wire_what_the_api_document_says(
    wire: requests_mock.Mocker, call_type: Any, subject: str, path: str, body: bytes
) -> None:
    request = sent(wire, call_type, subject)
    assert request.method == "POST"
    assert request.url == f"https://files.example.com{path}"
    assert request.body == body
    assert dict(request.headers) == {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
        "User-Agent": request.headers["User-Agent"],
        "Accept-Encoding": "identity",
    }
    assert request.headers["User-Agent"].startswith("airflow-provider-cloudstore/")


def test_the_get_is_on_the_wire_what_the_api_document_says(wire: requests_mock.Mocker) -> None:
    request = sent(wire, CreateDownloadLink, "f 1")
    parts = urlsplit(request.url)
    assert request.method == "GET"
    assert parts.path == "/prefix/cloud/api/v2/file/download"
    assert parts.query == f"access_token={TOKEN}&file_id=f%201"
    assert parse_qs(parts.query) == {"access_token": [TOKEN], "file_id": ["f 1"]}
    assert request.body is None
    assert dict(request.headers) == {
        "Accept": "application/json",
        "User-Agent": request.headers["User-Agent"],
        "Accept-Encoding": "identity",
    }


def test_every_request_has_both_time_limits_and_verifies_tls(wire: requests_mock.Mocker) -> None:
    request = sent(wire, DeleteFolder, "d1")
    assert request.timeout == (10, 30)
    assert request.verify is not False


def test_a_netrc_file_does_not_replace_the_token(
    wire: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine files.example.com login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert sent(wire, DeleteFolder, "d1").headers["Authorization"] == f"Bearer {TOKEN}"


def test_the_connections_proxy_wins_over_the_environments(wire: requests_mock.Mocker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:1")
    from airflow_provider_cloudstore.protocol.secrets import Secret

    own = settings(BASE, proxy=Secret("http://u:p@own:2"))
    perform(DeleteFolder("d1", own), own)
    assert wire.request_history[0].proxies["https"] == "http://u:p@own:2"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_reached_means_never_sent(scheme: str) -> None:
    from airflow_provider_cloudstore.protocol.secrets import Secret

    own = settings(f"{scheme}://localhost.example", proxy=Secret("http://u:hunter2@127.0.0.1:9"), max_attempts=1)
    with pytest.raises(errors.ServiceUnreachable, match="connection refused") as failed:
        perform(DeleteFolder("d1", own), own)
    assert "hunter2" not in str(failed.value)


def test_calls_of_one_client_share_a_connection(emulator: Emulator) -> None:
    own = settings(emulator.url, emulator.access_token)
    store_file(emulator)
    opened: list[Any] = []
    connect = socket.create_connection
    with BlockingClient(own, lambda: own) as client:
        import urllib3.util.connection as urllib3_connection

        original = urllib3_connection.create_connection
        urllib3_connection.create_connection = lambda *a, **k: opened.append(a) or original(*a, **k)  # type: ignore[func-returns-value]
        try:
            for _ in range(5):
                client.perform(CreateDownloadLink("f1", own))
        finally:
            urllib3_connection.create_connection = original
    assert len(opened) == 1
    assert connect is socket.create_connection


def test_the_debug_log_of_urllib3_holds_no_query(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    store_file(emulator)
    own = settings(emulator.url, emulator.access_token)
    with caplog.at_level(logging.DEBUG):
        link = perform(CreateDownloadLink("f1", own), own)
    assert "/cloud/api/v2/file/download?***" in caplog.text
    for secret in (emulator.access_token, link.token):
        assert secret not in caplog.text


def serve_bytes(*pieces: bytes) -> tuple[str, threading.Thread]:
    """A server that reads one request, answers with raw bytes and closes."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65536)
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):  # closing over unread bytes would reset the connection
                pass

    thread = threading.Thread(target=run)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}", thread


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no http at all\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Header: x\r\n" * 200 + b"\r\n",
    ],
)
def test_an_answer_that_is_not_http_is_an_unknown_outcome_in_words_of_our_own(raw: bytes) -> None:
    url, thread = serve_bytes(raw)
    own = settings(url)
    with pytest.raises(errors.OutcomeUnknown) as failed:
        perform(UploadFromUrl("https://h/f?sig=hunter2", own), own)
    thread.join()
    assert failed.value.__context__ is None
    for secret in ("hunter2", TOKEN, "url_upload_add"):
        assert secret not in str(failed.value)


def test_a_body_of_exactly_one_mebibyte_is_read_and_one_byte_more_is_not() -> None:
    body = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    for extra, fine in ((b"", True), (b" ", False)):
        url, thread = serve_bytes(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body + extra)
        own = settings(url)
        if fine:
            assert perform(DeleteFolder("d1", own), own).response[:3] == "xxx"
        else:
            with pytest.raises(errors.UnusableAnswer, match="1024 KiB"):
                perform(DeleteFolder("d1", own), own)
        thread.join()


def test_a_cause_is_named_by_its_kind_and_never_by_its_text() -> None:
    error = ValueError("https://h/?access_token=hunter2")
    assert reason_of(error) == "connection broken (ValueError)"
    error.__cause__ = OSError("hunter2")
    error.__cause__.__context__ = ConnectionRefusedError("hunter2")
    assert reason_of(error) == "connection refused"
    looped = TimeoutError()
    looped.__context__ = looped
    assert reason_of(looped) == "timed out"
