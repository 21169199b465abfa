"""What is sent, to whom, and over which connection: the same for both clients and for downloads."""

from __future__ import annotations

import base64
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.messages import FailureKind
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL, Operation
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.clients.conftest import (
    CHUNKED,
    HOST,
    LINK_TOKEN,
    OK,
    OTHER,
    WAYS,
    Authority,
    Send,
    Serve,
    bodies,
    send_in,
    stay_open,
)
from tests.raw_server import Handler, RawServer
from tests.support import TOKEN, settings

GET_LINK = f"/prefix/cloud/api/v2/file/download?access_token={TOKEN}&file_id=f%201"
FORM = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-www-form-urlencoded"}


def head_and_body(request: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    return line, dict(header.split(": ", 1) for header in headers), body


@pytest.mark.parametrize(
    ("operation", "subject", "target", "headers", "body"),
    [
        (DELETE_FOLDER, "d 1", "POST /prefix/cloud/api/v2/folder/delete", FORM, b"folder_id=d%201"),
        (UPLOAD_FROM_URL, "ftp://h/?a=b", "POST /prefix/cloud/api/v2/file/url_upload_add", FORM, b"url=ftp%3A%2F%2Fh%2F%3Fa%3Db"),
        (CREATE_DOWNLOAD_LINK, "f 1", f"GET {GET_LINK}", {"Accept": "application/json"}, b""),
    ],
)  # fmt: skip
def test_an_operation_is_on_the_wire_what_the_api_document_says(
    send_call: Send, serve: Serve, operation: Operation, subject: str, target: str, headers: dict[str, str], body: bytes
) -> None:
    server = serve(OK)
    send_call(settings(f"{server.url}/prefix"), operation=operation, subject=subject)
    line, sent, sent_body = head_and_body(server.requests[0])
    assert line == f"{target} HTTP/1.1"
    assert sent_body == body
    assert sent.pop("User-Agent").startswith("airflow-provider-cloudstore/")
    length = {"Content-Length": str(len(body))} if body else {}
    assert sent == {"Host": server.url.removeprefix("http://"), "Accept-Encoding": "identity", **headers, **length}


def test_a_download_is_on_the_wire_its_link_alone(serve: Serve) -> None:
    server = serve(OK)
    send_in(WAYS["download"], settings(server.url))
    line, headers, body = head_and_body(server.requests[0])
    assert line == f"GET /{LINK_TOKEN}?t={LINK_TOKEN} HTTP/1.1"
    assert headers.pop("User-Agent").startswith("airflow-provider-cloudstore/")
    assert headers == {"Host": server.url.removeprefix("http://"), "Accept": "*/*", "Accept-Encoding": "identity"}
    assert body == b""


def test_a_netrc_file_takes_no_part(send: Send, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = serve(OK)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert bodies(send(settings(server.url))) == [b"{}"]
    assert "Basic" not in head_and_body(server.requests[0])[1].get("Authorization", "")


def test_the_environments_proxies_take_no_part_in_a_client(
    send_call: Send, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")  # settings name the proxy that the environment had when they were read
    assert bodies(send_call(settings(serve(OK).url))) == [b"{}"]


def test_a_cookie_is_not_kept(send: Send, serve: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nSet-Cookie: \xff=\x01;expires=x\r\nContent-Length: 2\r\n\r\n"
    server = serve(head + b"{}", then=stay_open)
    send(settings(server.url), 2)
    assert len(server.requests) == 2
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize("operation", [CREATE_DOWNLOAD_LINK, DELETE_FOLDER], ids=["get", "post"])
def test_a_request_that_is_lost_on_a_reused_connection_is_sent_once(send: Send, serve: Serve, operation: Operation) -> None:
    def answer_once(own: RawServer, connection: socket.socket) -> None:
        own.read_request(connection)
        connection.sendall(OK)
        own.read_request(connection)

    server = serve(handler=answer_once)
    first, second = send(settings(server.url), 2, operation=operation)
    assert first.body == b"{}"
    assert second.kind is FailureKind.OUTCOME_UNKNOWN
    assert len(server.requests) == 2


def test_a_connection_that_was_read_to_the_end_is_used_again(send: Send, serve: Serve) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    server = serve(OK, CHUNKED + b"2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", interim + OTHER, OK, then=stay_open)
    assert bodies(send(settings(server.url), 4)) == [b"{}", b"{}", b"[other]", b"{}"]
    assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize(
    "answer",
    [CHUNKED + b"zz\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"],
    ids=["chunk", "length"],
)
def test_a_connection_that_was_not_read_to_the_end_is_not_used_again(send: Send, serve: Serve, answer: bytes) -> None:
    server = serve(answer, OK, then=stay_open)
    assert bodies(send(settings(server.url), 2))[1] == b"{}"
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize("late", [OTHER, OTHER[:20], b"x", b""], ids=["response", "half", "byte", "end"])
@pytest.mark.parametrize("at_once", [True, False], ids=["with-the-response", "while-idle"])
def test_what_comes_after_a_response_is_never_the_next_one(send: Send, serve: Serve, late: bytes, at_once: bool) -> None:
    responded, sent = threading.Event(), threading.Event()

    def more(connection: socket.socket) -> None:
        responded.wait(5)
        if not at_once and server.connections == 1:
            connection.sendall(late)
        if not late:
            connection.shutdown(socket.SHUT_RDWR)
        sent.set()

    def between() -> None:
        responded.set()
        assert sent.wait(5)

    server = serve(OK + (late if at_once else b""), OK, then=more)
    outcomes = send(settings(server.url, timeout=5), 2, between=between)
    assert bodies(outcomes)[1] == b"{}"
    assert len(server.requests) == 2
    if not at_once:
        assert outcomes[0].body == b"{}"
        assert server.connections == 2


def proxy_of(port: int) -> Secret:
    return Secret(f"http://us%40er:p%2Fw%20d%C3%A9@127.0.0.1:{port}")


PROXY_SECRETS = ("us@er", "us%40er", "p/w", "p%2Fw", "dXNAZXI6")
AUTHORIZATION = b"Proxy-Authorization: Basic " + base64.b64encode("us@er:p/w dé".encode())


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", FailureKind.PROXY_REFUSED, "HTTP 407"),
        (b"HTTP/1.1 403 us@er p/w d\xe9\r\nContent-Length: 4\r\n\r\nhttp", FailureKind.NEVER_SENT, "the proxy answered HTTP 403"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[x\r\n\r\n", FailureKind.NEVER_SENT, "the proxy answered HTTP 302"),
        (b"garbage us@er p/w\r\n\r\n", FailureKind.NEVER_SENT, ""),
        (b"", FailureKind.NEVER_SENT, ""),
    ],
)
def test_a_proxy_that_opens_no_tunnel_means_never_sent(
    send: Send, serve: Serve, answer: bytes, kind: FailureKind, words: str, logged: pytest.LogCaptureFixture
) -> None:
    proxy = serve(answer)
    (outcome,) = send(settings(f"https://{HOST}", proxy=proxy_of(proxy.port)))
    assert outcome.kind is kind
    assert words in outcome.reason
    assert len(proxy.requests) == 1
    assert proxy.requests[0].startswith(f"CONNECT {HOST}:443 ".encode())
    assert AUTHORIZATION in proxy.requests[0]
    assert not any(secret in str(proxy.requests[0]) for secret in (TOKEN, LINK_TOKEN))
    assert not any(secret in outcome.reason + logged.text for secret in PROXY_SECRETS)


def test_a_proxy_gets_a_plain_request_whole_and_with_its_credentials(
    send: Send, serve: Serve, logged: pytest.LogCaptureFixture
) -> None:
    proxy = serve(OK)
    assert bodies(send(settings(f"http://{HOST}:8080/pre", proxy=proxy_of(proxy.port)))) == [b"{}"]
    lines = proxy.requests[0].split(b"\r\n")
    is_call = lines[0] == f"POST http://{HOST}:8080/pre/cloud/api/v2/folder/delete HTTP/1.1".encode()
    assert is_call or lines[0] == f"GET http://{HOST}:8080/pre/{LINK_TOKEN}?t={LINK_TOKEN} HTTP/1.1".encode()
    assert AUTHORIZATION in lines
    assert f"Host: {HOST}:8080".encode() in lines
    assert (f"Authorization: Bearer {TOKEN}".encode() in lines) is is_call
    assert not any(secret in logged.text for secret in PROXY_SECRETS)


def tunnel(inside: Handler | None) -> Handler:
    def handle(own: RawServer, connection: socket.socket) -> None:
        own.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if inside:
            inside(own, connection)

    return handle


def test_a_tunnel_carries_the_request_and_only_the_proxy_gets_its_credentials(
    send: Send, serve: Serve, authority: Authority
) -> None:
    def respond(own: RawServer, connection: socket.socket) -> None:
        with authority.server_context(HOST).wrap_socket(connection, server_side=True) as over_tls:
            while own.read_request(over_tls):
                over_tls.sendall(OK)

    proxy = serve(handler=tunnel(respond))
    outcomes = send(settings(f"https://{HOST}", proxy=proxy_of(proxy.port), verify=authority.bundle), 2)
    assert bodies(outcomes) == [b"{}", b"{}"]
    assert proxy.connections == 1
    assert [request.startswith(b"CONNECT") for request in proxy.requests] == [True, False, False]
    assert [b"Proxy-Authorization" in request for request in proxy.requests] == [True, False, False]


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "untrusted"])
def test_what_fails_in_a_tunnel_is_not_blamed_on_the_proxys_response(
    send: Send, serve: Serve, authority: Authority, closes: bool
) -> None:
    def handshake(_: Any, connection: socket.socket) -> None:
        authority.server_context(HOST).wrap_socket(connection, server_side=True)

    proxy = serve(handler=tunnel(None if closes else handshake))
    (outcome,) = send(settings(f"https://{HOST}", proxy=Secret(proxy.url)))
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "HTTP 200" not in outcome.reason
    assert closes or "TLS certificate verification failed" in outcome.reason
