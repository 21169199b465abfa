"""What is the blocking client's own; what both clients promise is in ``tests/contract``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import Call, CreateDownloadLink, DeleteFolder
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.support import TOKEN, settings, store_file

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ANSWERS = {
    "ok": OK,
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://[bad\r\nContent-Length: 0\r\n\r\n",
    "no-colon": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nno colon\r\n\r\n{}",
    "nothing": b"",
    "no-http": b"no http at all\r\n\r\n",
    "cookie": b"HTTP/1.1 200 OK\r\nSet-Cookie: =;expires=x\r\nContent-Length: 2\r\n\r\n{}",
}


def perform(call: Call[Any], own: Settings, **more: Any) -> Any:
    with BlockingClient(own, lambda: own) as client:
        return client.perform(call, **more)


def head_and_body(request: bytes) -> tuple[bytes, dict[str, str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, dict(header.decode().split(": ", 1) for header in headers), body


@pytest.mark.parametrize(
    ("operation", "subject", "path", "body"),
    [
        (DELETE_FOLDER, "d 1", "/prefix/cloud/api/v2/folder/delete", b"folder_id=d%201"),
        (UPLOAD_FROM_URL, "https://h/f?a=b", "/prefix/cloud/api/v2/file/url_upload_add", b"url=https%3A%2F%2Fh%2Ff%3Fa%3Db"),
    ],
)
def test_a_post_is_on_the_wire_what_the_api_document_says(
    send: Any, serve: Any, operation: Any, subject: str, path: str, body: bytes
) -> None:
    server = serve(OK)
    send(settings(f"{server.url}/prefix"), operation=operation, subject=subject)
    line, headers, sent = head_and_body(server.requests[0])
    assert line == f"POST {path} HTTP/1.1".encode()
    assert sent == body
    assert headers == {
        "Host": server.url.removeprefix("http://"),
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
        "User-Agent": headers["User-Agent"],
        "Accept-Encoding": "identity",
    }
    assert headers["User-Agent"].startswith("airflow-provider-cloudstore/")


def test_the_get_is_on_the_wire_what_the_api_document_says(send: Any, serve: Any) -> None:
    server = serve(OK)
    send(settings(f"{server.url}/prefix"), operation=CREATE_DOWNLOAD_LINK, subject="f 1")
    line, headers, body = head_and_body(server.requests[0])
    assert line == f"GET /prefix/cloud/api/v2/file/download?access_token={TOKEN}&file_id=f%201 HTTP/1.1".encode()
    assert body == b""
    assert headers == {
        "Host": server.url.removeprefix("http://"),
        "Accept": "application/json",
        "User-Agent": headers["User-Agent"],
        "Accept-Encoding": "identity",
    }


def test_neither_a_netrc_file_nor_the_environment_takes_part_in_a_client(
    send: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = serve(OK)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("NO_PROXY", "")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    send(settings(server.url))
    assert head_and_body(server.requests[0])[1]["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_reached_means_never_sent(scheme: str) -> None:
    from airflow_provider_cloudstore.protocol.secrets import Secret

    own = settings(f"{scheme}://localhost.example", proxy=Secret("http://u:hunter2@127.0.0.1:9"), max_attempts=1)
    with pytest.raises(errors.ServiceUnreachableError, match="connection refused") as failed:
        perform(DeleteFolder("d1", own), own)
    assert "hunter2" not in str(failed.value)


def test_calls_of_one_client_share_a_connection(emulator: Emulator) -> None:
    own = settings(emulator.url, emulator.access_token)
    store_file(emulator)
    with BlockingClient(own, lambda: own) as client:
        for _ in range(5):
            client.perform(CreateDownloadLink("f1", own))
    assert emulator.state()["connections"]["opened"] == 1


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_no_logger_prints_a_query_a_header_or_a_body(
    send: Any, serve: Any, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    asked = "https://user:hunter2@h/f?sig=hunter3"
    with caplog.at_level(logging.DEBUG, ""):
        for name in list(logging.root.manager.loggerDict):
            caplog.set_level(logging.DEBUG, name)
        own = settings(serve(answer).url)
        for operation in (CREATE_DOWNLOAD_LINK, UPLOAD_FROM_URL):
            send(own, operation=operation, subject=asked)
    for record in caplog.records:
        text = logging.Formatter().format(record)
        assert not any(secret in text for secret in (TOKEN, "hunter2", "hunter3", "access_token", "Bearer"))


def test_a_body_of_exactly_one_mebibyte_is_read_and_one_byte_more_is_not(serve: Any) -> None:
    body = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    for extra, fine in ((b"", True), (b" ", False)):
        own = settings(serve(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body + extra).url)
        if fine:
            assert perform(DeleteFolder("d1", own), own).response[:3] == "xxx"
        else:
            with pytest.raises(errors.InvalidResponseError, match="1024 KiB"):
                perform(DeleteFolder("d1", own), own)
