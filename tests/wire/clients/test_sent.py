"""Whether a request was sent: its connection says so. What may have arrived is counted by the server, and is never resent."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.calls import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import HEAD, OK, Authority, Handler, RawServer, close, reset
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import HOST, LINK_TOKEN, Send, Serve, Way

UPLOAD = UploadFromUrl, "https://source.example/f"
QUEUED = HEAD + b'Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{"file_id":"f1"}'
Unknown = exceptions.OutcomeUnknownError


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


def through(serve: Serve, *response: bytes, handler: Handler | None = None) -> Settings:
    """A connection to https through a proxy that responds so to CONNECT."""
    proxy = serve(*response, handler=handler)
    return settings(f"https://{HOST}", timeout=0.5, proxy=Secret(f"http://us%40er:p%2Fw%20d%C3%A9@127.0.0.1:{proxy.port}"))


def https(serve: Serve, handler: Handler, **more: Any) -> Settings:
    return settings(serve(handler=handler).url.replace("http:", "https:"), **more)


def go_silent(_: RawServer, connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


# What may keep a request from being sent, what is said of it, and the advice.
SITUATIONS: dict[str, tuple[Any, str, str]] = {
    "name not found": (lambda *_: settings("https://no-such-host.invalid"), "host name not found", "DNS"),
    "refused": (lambda *_: settings("https://127.0.0.1:9"), "connection refused", "running"),
    "untrusted": (lambda serve, ca: https(serve, ca.respond), "TLS certificate verification failed", "extra 'verify'"),
    "another host": (lambda serve, ca: https(serve, ca.respond, verify=ca.bundle), "is not valid for", "the certificate"),
    "no TLS": (lambda serve, _: https(serve, lambda _, one: one.sendall(b"HTTP/1.1 400 No\r\n\r\n")), "TLS failed", "http://"),
    "silent TLS": (lambda serve, _: https(serve, go_silent, timeout=0.5), "timed out", "Check the port"),
    "proxy refused": (lambda *_: settings("http://h", proxy=Secret("http://us%40er:p%2Fw@127.0.0.1:9")), "refused", "the proxy"),
    "proxy: 407": (lambda serve, _: through(serve, b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"), "HTTP 407", "extra 'proxy'"),
    "proxy: 403": (lambda serve, _: through(serve, b"HTTP/1.1 403 us@er p/w\r\n\r\n"), "HTTP 403 to CONNECT", "the proxy"),
    "proxy: garbage": (lambda serve, _: through(serve, b"garbage us@er p/w\r\n\r\n"), "no connection", "the proxy"),
    "proxy: nothing": (lambda serve, _: through(serve, b""), "no connection", "the proxy"),
    "proxy: silent": (lambda serve, _: through(serve, handler=go_silent), "timed out", "the proxy"),
    "proxy: no TLS inside": (lambda serve, _: through(serve, b"HTTP/1.1 200 Established\r\n\r\n"), "no connection", ""),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_without_a_connection_nothing_was_sent_and_the_advice_fits_the_failure(
    send: Send, serve: Serve, authority: Authority, situation: str, logged: pytest.LogCaptureFixture
) -> None:
    prepare, what, advice = SITUATIONS[situation]
    error = send(prepare(serve, authority))
    happened, _, then = str(error).partition("\n")
    assert what in happened
    assert advice in then
    assert isinstance(error, exceptions.ConfigurationError if "407" in situation else exceptions.ServiceUnreachableError)
    assert not error.sent
    assert not any(secret in str(error) + logged.text for secret in ("us@er", "us%40er", "p/w", "p%2Fw", TOKEN, LINK_TOKEN))


@pytest.mark.parametrize("sent", [b"", OK[:-1]], ids=["response", "body"])
def test_silence_after_a_request_ends_with_the_timeout(send: Send, serve: Serve, sent: bytes) -> None:
    def respond(server: RawServer, connection: socket.socket) -> None:
        connection.sendall(sent)
        go_silent(server, connection)

    error = send(settings(serve(handler=respond).url, timeout=0.5))
    assert error.sent is True
    assert "within 0.5 s" in error.reason
