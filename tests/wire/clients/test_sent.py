"""Whether a request was sent. What may have arrived is counted by the server, and is never resent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.operations import UploadFromUrl
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.raw_server import HEAD, OK, Authority, Handler, RawServer, close, reset, slowly, stay_open
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import HOST, LINK_TOKEN, Send, Serve, Way, blocking, proxy_of, respond_once

UPLOAD = UploadFromUrl, "https://source.example/f"
QUEUED = HEAD + b'Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{"file_id":"f1"}'
Unknown = exceptions.OutcomeUnknownError


@pytest.mark.parametrize("end", [close, reset])
def test_a_response_that_is_cut_off_anywhere_never_makes_an_upload_arrive_twice(call_way: Way, serve: Serve, end: Any) -> None:
    server = serve(*(QUEUED[:length] for length in range(len(QUEUED))), then=end)
    with call_way(settings(server.url)) as send:
        unknown = [isinstance(send(*UPLOAD), Unknown) for _ in QUEUED]
    assert len(server.requests) == len(QUEUED)
    # A head that was cut off after its status counts as that status.
    assert all(unknown[: QUEUED.index(b" OK")] + unknown[QUEUED.index(b"{") :])


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_upload_that_its_proxy_has_read_arrives_once_and_is_unknown(
    call_way: Way, serve: Serve, authority: Authority, scheme: str
) -> None:
    def hand_nothing_on(proxy: RawServer, connection: socket.socket) -> None:
        if scheme == "https":
            proxy.read_request(connection)
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            connection = authority.wrap(connection, HOST)
        proxy.read_request(connection)
        reset(connection)

    proxy = serve(handler=hand_nothing_on)
    with call_way(settings(f"{scheme}://{HOST}", proxy=Secret(proxy.url), verify=authority.bundle)) as send:
        assert isinstance(send(*UPLOAD), Unknown)
    assert sum(b"url_upload_add" in request for request in proxy.requests) == 1


def test_plain_text_in_place_of_a_tls_response_leaves_an_upload_unknown(
    call_way: Way, serve: Serve, authority: Authority
) -> None:
    def answer_without_tls(server: RawServer, connection: socket.socket) -> None:
        over_tls = authority.wrap(connection)
        server.read_request(over_tls)
        with socket.socket(fileno=over_tls.detach()) as plain:
            plain.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")

    server = serve(handler=answer_without_tls)
    own = settings(server.url.replace("http://127.0.0.1", "https://localhost"), verify=authority.bundle)
    with call_way(own) as send:
        assert isinstance(send(*UPLOAD), Unknown)
    assert len(server.requests) == 1


def test_an_upload_that_is_lost_on_a_reused_connection_is_unknown(call_way: Way, serve: Serve) -> None:
    server = serve(handler=respond_once)
    with call_way(settings(server.url)) as send:
        assert send(*UPLOAD) == "{}"
        assert isinstance(send(*UPLOAD), Unknown)
    assert (len(server.requests), server.connections) == (2, 1)


def test_an_upload_never_goes_over_a_connection_that_was_idle_for_a_second(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_after_one(server: RawServer, connection: socket.socket) -> None:  # as a balancer forgets idle connections
        server.read_request(connection)
        connection.sendall(OK)
        go_silent(server, connection)

    server, now = serve(handler=forget_after_one), time.monotonic
    with blocking(settings(server.url, timeout=0.5)) as send:
        for minutes in range(3):
            monkeypatch.setattr(time, "monotonic", lambda minutes=minutes: now() + minutes * 60)
            assert send(*UPLOAD) == "{}"
    assert (len(server.requests), server.connections) == (3, 3)


def test_closing_idle_connections_breaks_no_upload_of_another_thread(serve: Serve) -> None:
    server = serve(slowly(1.2, OK[:-1], OK[-1:]), OK, then=stay_open)
    with blocking(settings(server.url)) as send, ThreadPoolExecutor(1) as thread:
        slow = thread.submit(send, *UPLOAD)
        time.sleep(1.1)
        assert (send(*UPLOAD), slow.result()) == ("{}", "{}")
    assert len(server.requests) == 2


def test_an_exception_that_a_user_is_handling_says_nothing_of_an_upload(serve: Serve) -> None:
    server = serve(b"")
    own = settings(server.url)
    with BlockingClient(own) as client:
        try:
            client.session.get("http://127.0.0.1:9")
        except OSError:
            with pytest.raises(Unknown):
                client.perform(UploadFromUrl(own, "https://source.example/f"))
    assert len(server.requests) == 1


def through(serve: Serve, *response: bytes, **more: Any) -> Settings:
    """A connection to https through a proxy that responds so to CONNECT."""
    return settings(f"https://{HOST}", timeout=0.5, proxy=proxy_of(serve(*response, **more)))


def https(serve: Serve, handler: Handler, **more: Any) -> Settings:
    return settings(serve(handler=handler).url.replace("http:", "https:"), timeout=0.5, **more)


def go_silent(_: RawServer, connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


# What keeps a request from being sent, beyond what is in the failure table.
NEVER_SENT: dict[str, Callable[[Serve, Authority], Settings]] = {
    "untrusted": lambda serve, ca: https(serve, ca.respond),
    "another host": lambda serve, ca: https(serve, ca.respond, verify=ca.bundle),
    "proxy refused": lambda *_: settings("http://h", proxy=Secret("http://us%40er:p%2Fw@127.0.0.1:9")),
    "proxy: 403": lambda serve, _: through(serve, b"HTTP/1.1 403 us@er p/w\r\n\r\n"),
}
# What may come of a request that was sent, too: the library's exception does not tell.
IN_DOUBT: dict[str, Callable[[Serve, Authority], Settings]] = {
    "silent TLS": lambda serve, _: https(serve, go_silent),
    "proxy: garbage": lambda serve, _: through(serve, b"garbage us@er p/w\r\n\r\n"),
    "proxy: silent": lambda serve, _: through(serve, handler=go_silent),
    "proxy: no TLS inside": lambda serve, _: through(serve, b"HTTP/1.1 200 Established\r\n\r\n"),
    "a status like a refused tunnel": lambda serve, _: settings(serve(b"Tunnel connection failed: 503\r\n\r\n").url),
}


@pytest.mark.parametrize("situation", [*NEVER_SENT, *IN_DOUBT])
def test_a_failure_to_connect_is_never_sent_if_that_is_clear_and_shows_no_credential(
    send: Send, serve: Serve, authority: Authority, situation: str, logged: pytest.LogCaptureFixture
) -> None:
    error = send((NEVER_SENT | IN_DOUBT)[situation](serve, authority))
    assert isinstance(error, exceptions.ServiceUnreachableError if situation in NEVER_SENT else exceptions.CloudStoreError)
    assert not any(secret in str(error) + logged.text for secret in ("us@er", "us%40er", "p/w", "p%2Fw", TOKEN, LINK_TOKEN))
