"""Whether a request was sent: its connection says so. What may have arrived is counted by the server, and never sent again."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.raw_server import RawServer
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import HEAD, HOST, LINK_TOKEN, OK, Authority, Send, Serve, Way, close, reset

UPLOAD = UploadFromUrl, "https://source.example/f"
QUEUED = HEAD + b'Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{"file_id":"f1"}'
Unknown = errors.OutcomeUnknownError


@pytest.mark.parametrize("end", [close, reset])
def test_a_response_that_is_cut_off_anywhere_never_makes_an_upload_arrive_twice(call_way: Way, serve: Serve, end: Any) -> None:
    lengths = iter(range(len(QUEUED)))

    def respond(server: RawServer, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(QUEUED[: next(lengths)])
        end(connection)

    server = serve(handler=respond)
    with call_way(settings(server.url)) as send:
        unknown = [isinstance(send(*UPLOAD), Unknown) for _ in QUEUED]
    assert len(server.requests) == len(QUEUED)
    # A head that was cut off after its status counts as that status.
    assert all(unknown[: QUEUED.index(b" OK")] + unknown[QUEUED.index(b"{") :])


@pytest.mark.parametrize("end", [close, reset])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_upload_that_its_proxy_has_read_arrives_once_and_is_unknown(
    call_way: Way, serve: Serve, authority: Authority, scheme: str, end: Any
) -> None:
    def hand_nothing_on(proxy: RawServer, connection: socket.socket) -> None:
        if scheme == "https":
            proxy.read_request(connection)
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            connection = authority.wrap(connection, HOST)
        proxy.read_request(connection)
        end(connection)

    proxy = serve(handler=hand_nothing_on)
    with call_way(settings(f"{scheme}://{HOST}", proxy=Secret(proxy.url), verify=authority.bundle)) as send:
        assert isinstance(send(*UPLOAD), Unknown)
    assert sum(b"url_upload_add" in request for request in proxy.requests) == 1


def test_an_upload_that_is_lost_on_a_reused_connection_is_unknown(call_way: Way, serve: Serve) -> None:
    def respond_once(server: RawServer, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(OK)
        server.read_request(connection)

    server = serve(handler=respond_once)
    with call_way(settings(server.url)) as send:
        assert send(*UPLOAD) == "{}"
        assert isinstance(send(*UPLOAD), Unknown)
    assert (len(server.requests), server.connections) == (2, 1)


def test_an_exception_that_a_user_is_handling_says_nothing_of_an_upload(serve: Serve) -> None:
    server = serve(b"")
    own = settings(server.url)
    with BlockingClient(own, lambda: own) as client:
        try:
            client.session.get("http://127.0.0.1:9")
        except OSError:
            with pytest.raises(Unknown):
                client.perform(UploadFromUrl("https://source.example/f", own))
    assert len(server.requests) == 1


NOT_OPENED = {
    "407": (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", errors.ConfigurationError, "HTTP 407"),
    "403": (b"HTTP/1.1 403 us@er p/w\r\nContent-Length: 4\r\n\r\nhttp", errors.ServiceUnreachableError, "HTTP 403"),
    "garbage": (b"garbage us@er p/w\r\n\r\n", errors.ServiceUnreachableError, ""),
    "nothing": (b"", errors.ServiceUnreachableError, ""),
    "no-tls-inside": (b"HTTP/1.1 200 Connection established\r\n\r\n", errors.ServiceUnreachableError, ""),
}


@pytest.mark.parametrize(("response", "kind", "words"), NOT_OPENED.values(), ids=NOT_OPENED)
def test_nothing_was_sent_through_a_proxy_that_opens_no_tunnel(
    send: Send, serve: Serve, response: bytes, kind: Any, words: str, logged: pytest.LogCaptureFixture
) -> None:
    proxy = serve(response)
    error = send(settings(f"https://{HOST}", proxy=Secret(f"http://us%40er:p%2Fw%20d%C3%A9@127.0.0.1:{proxy.port}")))
    assert type(error) is kind
    assert words in error.reason
    assert proxy.requests[0].startswith(f"CONNECT {HOST}:443 ".encode())
    assert not any(secret in str(proxy.requests) for secret in (TOKEN, LINK_TOKEN))
    assert not any(secret in str(error) + logged.text for secret in ("us@er", "us%40er", "p/w", "p%2Fw"))


@pytest.mark.parametrize("stage", ["handshake", "tunnel", "response", "body"])
def test_silence_ends_with_the_timeout_and_before_the_connection_is_made_nothing_was_sent(
    send: Send, serve: Serve, stage: str
) -> None:
    def go_silent(_: RawServer, connection: socket.socket) -> None:
        connection.sendall(OK[:-1] if stage == "body" else b"")
        while connection.recv(65536):
            pass

    url = serve(handler=go_silent).url
    own = {
        "handshake": partial(settings, url.replace("http:", "https:")),
        "tunnel": partial(settings, f"https://{HOST}", proxy=Secret(url)),
    }.get(stage, partial(settings, url))
    error = send(own(timeout=0.5))
    assert error.sent is (stage in ("response", "body"))
    assert "timed out" in error.reason or "within 0.5 s" in error.reason
