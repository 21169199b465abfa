"""What is sent, to whom, and over which connection: the same for both clients and for downloads."""

from __future__ import annotations

import base64
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import CreateDownloadLink, DeleteFolder, UploadFromUrl
from airflow_provider_cloudstore.protocol.messages import Response
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.raw_server import RawServer
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import CHUNKED, HOST, LINK_TOKEN, OK, OTHER, Authority, Send, Serve, Way, stay_open

GET_LINK = f"/prefix/cloud/api/v2/file/download?access_token={TOKEN}&file_id=f%201"
FORM = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("kind", "subject", "target", "headers", "body"),
    [
        (DeleteFolder, "d 1", "POST /prefix/cloud/api/v2/folder/delete", FORM, b"folder_id=d%201"),
        (UploadFromUrl, "ftp://h/?a=b", "POST /prefix/cloud/api/v2/file/url_upload_add", FORM, b"url=ftp%3A%2F%2Fh%2F%3Fa%3Db"),
        (CreateDownloadLink, "f 1", f"GET {GET_LINK}", {"Accept": "application/json"}, b""),
    ],
)  # fmt: skip
def test_an_operation_is_on_the_wire_what_the_api_document_says(
    send_call: Send, serve: Serve, kind: Any, subject: str, target: str, headers: dict[str, str], body: bytes
) -> None:
    server = serve(OK)
    send_call(settings(f"{server.url}/prefix"), kind, subject)
    head, _, sent_body = server.requests[0].partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    sent = dict(line.split(": ", 1) for line in lines)
    assert line == f"{target} HTTP/1.1"
    assert sent.pop("User-Agent").startswith("airflow-provider-cloudstore/")
    length = {"Content-Length": str(len(body))} if body else {}
    assert sent == {"Host": server.url.removeprefix("http://"), "Accept-Encoding": "identity", **headers, **length}
    assert sent_body == body


def test_no_cookie_and_no_netrc_file_takes_part(way: Way, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server = serve(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\n\r\n"), then=stay_open)
    with way(settings(server.url)) as send:
        assert [send().body, send().body] == [b"{}", b"{}"]
    assert not [request for request in server.requests if b"Basic" in request or b"cookie" in request.lower()]


def test_a_call_uses_no_proxy_of_the_environment(send_call: Send, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")  # settings name the proxy that the environment had when they were read
    assert send_call(settings(serve(OK).url)).body == b"{}"


@pytest.mark.parametrize("kind", [CreateDownloadLink, DeleteFolder])
def test_a_request_that_is_lost_on_a_reused_connection_is_sent_once(way: Way, serve: Serve, kind: Any) -> None:
    def respond_once(server: RawServer, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(OK)
        server.read_request(connection)

    server = serve(handler=respond_once)
    with way(settings(server.url)) as send:
        assert send(kind).body == b"{}"
        assert send(kind).sent is True
    assert (len(server.requests), server.connections) == (2, 1)


def test_a_connection_that_was_read_to_the_end_is_used_again(way: Way, serve: Serve) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    server = serve(OK, CHUNKED + b"2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", interim + OTHER, OK, then=stay_open)
    with way(settings(server.url)) as send:
        assert [send().body for _ in range(4)] == [b"{}", b"{}", b"[other]", b"{}"]
    assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize("first", [CHUNKED + b"zz\r\n", OK + OTHER], ids=["malformed", "two-at-once"])
def test_a_connection_with_more_than_a_response_is_not_used_again(way: Way, serve: Serve, first: bytes) -> None:
    server = serve(first, OK, then=stay_open)
    with way(settings(server.url)) as send:
        send()
        assert send().body == b"{}"
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize("late", [OTHER, b"x", b""], ids=["response", "byte", "end"])
def test_a_connection_on_which_something_came_while_it_was_idle_is_not_used_again(way: Way, serve: Serve, late: bytes) -> None:
    idle, came = threading.Event(), threading.Event()

    def come_late(connection: socket.socket) -> None:
        idle.wait(5)
        connection.sendall(late) if late else connection.shutdown(socket.SHUT_RDWR)
        came.set()

    server = serve(OK, then=come_late)
    with way(settings(server.url)) as send:
        first = send()
        idle.set()
        assert came.wait(5)
        assert (first.body, send().body) == (b"{}", b"{}")
    assert (len(server.requests), server.connections) == (2, 2)


def proxy_of(server: RawServer) -> Secret:
    return Secret(f"http://us%40er:p%2Fw%20d%C3%A9@127.0.0.1:{server.port}")


AUTHORIZATION = b"Proxy-Authorization: Basic " + base64.b64encode("us@er:p/w dé".encode())


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", errors.ConfigurationError, "HTTP 407"),
        (b"HTTP/1.1 403 us@er p/w d\xe9\r\nContent-Length: 4\r\n\r\nhttp", errors.ServiceUnreachableError, "HTTP 403"),
        (b"garbage us@er p/w\r\n\r\n", errors.ServiceUnreachableError, ""),
        (b"", errors.ServiceUnreachableError, ""),
        (b"HTTP/1.1 200 Connection established\r\n\r\n", errors.ServiceUnreachableError, ""),
    ],
    ids=["407", "403", "garbage", "nothing", "no-tls-inside"],
)
def test_a_proxy_that_opens_no_tunnel_means_never_sent(
    send: Send, serve: Serve, response: bytes, kind: Any, words: str, logged: pytest.LogCaptureFixture
) -> None:
    proxy = serve(response)
    error = send(settings(f"https://{HOST}", proxy=proxy_of(proxy)))
    assert type(error) is kind
    assert words in error.reason
    assert "HTTP 200" not in error.reason
    request = proxy.requests[0]
    assert request.startswith(f"CONNECT {HOST}:443 ".encode())
    assert AUTHORIZATION in request
    assert not any(secret in str(request) for secret in (TOKEN, LINK_TOKEN))
    assert not any(secret in str(error) + logged.text for secret in ("us@er", "us%40er", "p/w", "p%2Fw"))


def test_a_proxy_gets_a_plain_request_whole_and_with_its_credentials(send: Send, serve: Serve) -> None:
    proxy = serve(OK)
    assert send(settings(f"http://{HOST}:8080/pre", proxy=proxy_of(proxy))).body == b"{}"
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
        assert [send().body, send().body] == [b"{}", b"{}"]
    assert proxy.connections == 1
    assert [request.startswith(b"CONNECT") for request in proxy.requests] == [True, False, False]
    assert [b"Proxy-Authorization" in request for request in proxy.requests] == [True, False, False]


def test_a_request_of_ones_own_to_the_service_is_sent_as_it_is_between_our_calls(
    serve: Serve, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = serve(OK, then=stay_open)
    own = settings(server.url)
    call = CREATE_DOWNLOAD_LINK.request("f1", own)
    with BlockingClient(own, lambda: own) as client:
        for _ in range(2):
            assert client.session.post(f"{server.url}/a?b=hunter2", data={"d": "e"}).json() == {}
            answer = client.send(call, 5)
            assert isinstance(answer, Response)
            assert answer.body == b"{}"
    assert [request.split(b" ")[1].decode() for request in server.requests] == ["/a?b=hunter2", call.url[len(server.url) :]] * 2
    for request in server.requests[::2]:
        assert request.endswith(b"\r\n\r\nd=e")
        assert TOKEN.encode() not in request
        assert b"Authorization" not in request
    assert logged.records
    assert "hunter2" not in logged.text


def test_a_certificate_is_verified_unless_the_connection_says_otherwise(send: Send, serve: Serve, authority: Authority) -> None:
    url = f"https://localhost:{serve(handler=partial(authority.respond, name='localhost')).port}"
    assert send(settings(url)).sent is False
    for verify in (authority.bundle, False):
        assert send(settings(url, verify=verify)).body == b"{}"
