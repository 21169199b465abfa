"""What is sent, to whom, and over which connection: the same for both clients and for downloads."""

from __future__ import annotations

import base64
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, UploadFromUrl
from tests.raw_server import OK, Authority, RawServer, stay_open
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import HOST, LINK_TOKEN, Send, Serve, Way, proxy_of, send_once

GET_LINK = f"/prefix/cloud/api/v2/file/download?access_token={TOKEN}&file_id=f%201"
FORM = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-www-form-urlencoded"}
AUTHORIZATION = b"Proxy-Authorization: Basic " + base64.b64encode(b"us@er:p/w d")


@pytest.mark.parametrize(
    ("kind", "subject", "target", "headers", "body"),
    [
        (DeleteFolder, "d 1", "POST /prefix/cloud/api/v2/folder/delete", FORM, b"folder_id=d%201"),
        (UploadFromUrl, "ftp://h/?a=b", "POST /prefix/cloud/api/v2/file/url_upload_add", FORM, b"url=ftp%3A%2F%2Fh%2F%3Fa%3Db"),
        (CreateDownloadLink, "f 1", f"GET {GET_LINK}", {}, b""),
    ],
)  # fmt: skip
def test_an_operation_is_on_the_wire_what_the_api_document_says(
    call_way: Way, serve: Serve, kind: Any, subject: str, target: str, headers: dict[str, str], body: bytes
) -> None:
    server = serve(OK)
    send_once(call_way, settings(f"{server.url}/prefix"), kind, subject)
    head, _, sent_body = server.requests[0].partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    sent = dict(line.split(": ", 1) for line in lines)
    assert line == f"{target} HTTP/1.1"
    assert sent.pop("User-Agent").startswith("airflow-provider-cloudstore/")
    length = {"Content-Length": str(len(body))} if body else {}
    always = {"Host": server.url.removeprefix("http://"), "Accept": "application/json", "Accept-Encoding": "identity"}
    assert sent == {**always, **headers, **length}
    assert sent_body == body


def test_a_kept_connection_without_cookies_netrc_and_proxies_of_the_environment(
    way: Way, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):  # settings name the proxy that there was when they were read
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = serve(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n"), then=stay_open)
    with way(settings(server.url)) as send:
        assert [send(), send()] == ["{}", "{}"]
    assert server.connections == 1
    assert not [request for request in server.requests if b"Basic" in request or b"cookie" in request.lower()]


def test_a_proxy_gets_a_plain_request_whole_and_with_its_credentials(send: Send, serve: Serve) -> None:
    proxy = serve(OK)
    assert send(settings(f"http://{HOST}:8080/pre", proxy=proxy_of(proxy))) == "{}"
    lines = proxy.requests[0].split(b"\r\n")
    is_call = lines[0] == f"POST http://{HOST}:8080/pre/cloud/api/v2/folder/delete HTTP/1.1".encode()
    assert is_call or lines[0] == f"GET http://{HOST}:8080/pre/{LINK_TOKEN}?t={LINK_TOKEN} HTTP/1.1".encode()
    assert AUTHORIZATION in lines
    assert f"Host: {HOST}:8080".encode() in lines
    assert (f"Authorization: Bearer {TOKEN}".encode() in lines) is is_call


def tunnel(authority: Authority, proxy: RawServer, connection: socket.socket) -> None:
    proxy.read_request(connection)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    authority.respond(proxy, connection)


def test_only_the_proxy_gets_its_credentials_when_it_opens_a_tunnel(way: Way, serve: Serve, authority: Authority) -> None:
    proxy = serve(handler=partial(tunnel, authority))
    with way(settings(f"https://{HOST}", proxy=proxy_of(proxy), verify=authority.bundle)) as send:
        assert [send(), send()] == ["{}", "{}"]
    assert proxy.connections == 1
    assert [request.startswith(b"CONNECT") for request in proxy.requests] == [True, False, False]
    assert [AUTHORIZATION in request for request in proxy.requests] == [True, False, False]


def test_nothing_but_the_connections_bundle_is_trusted(
    send: Send, serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    another = Authority(tmp_path)
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", another.bundle)  # what requests would trust by itself
    url = f"https://localhost:{serve(handler=partial(another.respond, name='localhost')).port}"
    assert send(settings(url, verify=another.bundle)) == "{}"
    assert send(settings(url, verify=authority.bundle)).sent is False
