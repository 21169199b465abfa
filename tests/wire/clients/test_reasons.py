"""Why a request could not be sent, for both clients and for downloads: the advice fits the failure."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from airflow_provider_cloudstore.protocol.secrets import Secret
from tests.raw_server import Handler, RawServer
from tests.support import settings
from tests.wire.clients.conftest import Authority, Send, Serve

PROXY = Secret("http://user:hunter2@127.0.0.1:9")


def https(serve: Serve, handler: Handler) -> str:
    return serve(handler=handler).url.replace("http:", "https:")


def no_tls(_: RawServer, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


# What may keep a request from being sent, what is said of it, and the advice.
SITUATIONS: dict[str, tuple[Any, str, str]] = {
    "name not found": (lambda *_: settings("https://no-such-host.invalid"), "host name not found", "DNS"),
    "refused": (lambda *_: settings("https://127.0.0.1:9"), "connection refused", "running"),
    "untrusted": (lambda serve, ca: settings(https(serve, ca.respond)), "TLS certificate verification failed", "extra 'verify'"),
    "another host": (lambda serve, ca: settings(https(serve, ca.respond), verify=ca.bundle), "is not valid for", "does not name"),
    "no TLS": (lambda serve, _: settings(https(serve, no_tls)), "does not speak TLS", "http://"),
    "proxy refused": (lambda *_: settings("http://localhost", proxy=PROXY), "connection refused", "Check the proxy"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_advice_fits_the_failure(send: Send, serve: Serve, authority: Authority, situation: str) -> None:
    prepare, what, advice = SITUATIONS[situation]
    error = send(prepare(serve, authority))
    happened, _, then = str(error).partition("\n")
    assert "no connection to the service" in happened
    assert what in happened
    assert advice in then
    assert "hunter2" not in str(error)
    assert not error.sent
