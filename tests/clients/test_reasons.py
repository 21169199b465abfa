"""Why a request could not be sent, for API calls of both clients and for downloads: the advice fits the failure."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.messages import Cause
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import Authority, Serve, Way
from tests.raw_server import RawServer
from tests.support import settings


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that is bound, so that nobody takes it, and at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def situations(serve: Serve, authority: Authority, closed_port: int) -> dict[str, Callable[[], Settings]]:
    """What may keep a request from being sent: each starts the servers that it needs."""

    def speaks_tls_as(name: str) -> str:
        def handshake(_: RawServer, connection: socket.socket) -> None:
            with contextlib.suppress(ssl.SSLError):
                authority.server_context(name).wrap_socket(connection, server_side=True).close()

        return url_of(handshake)

    def url_of(handler: Callable[[RawServer, socket.socket], object]) -> str:
        return serve(handler=handler).url.replace("http:", "https:")

    def no_tls(_: RawServer, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    proxy = Secret(f"http://user:hunter2@127.0.0.1:{closed_port}")
    no_tunnel = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
    return {
        "name not found": lambda: settings("https://no-such-host.invalid"),
        "refused": lambda: settings(f"https://127.0.0.1:{closed_port}"),
        "silent": lambda: settings(url_of(lambda server, connection: server.read_request(connection)), timeout=0.3),
        "private authority": lambda: settings(speaks_tls_as("127.0.0.1")),
        "another host": lambda: settings(speaks_tls_as("another.example"), verify=authority.bundle),
        "no TLS": lambda: settings(url_of(no_tls)),
        "proxy refused": lambda: settings("http://localhost", proxy=proxy),
        "proxy refused, TLS": lambda: settings("https://localhost", proxy=proxy),
        "no tunnel": lambda: settings("https://files.example", proxy=Secret(serve(no_tunnel).url)),
    }


def error_of(way: Way, own: Settings) -> errors.CloudStoreError:
    with way(replace(own, max_attempts=1)) as sender, pytest.raises(errors.CloudStoreError) as failed:
        sender.perform()
    assert not failed.value.sent
    return failed.value


@pytest.mark.parametrize(
    ("situation", "what", "advice"),
    [
        ("name not found", "host name not found", "DNS"),
        ("refused", "connection refused", "running"),
        ("silent", "timed out", "firewall"),
        ("private authority", "TLS certificate verification failed", "private certificate authority"),
        ("another host", "is not valid for", "does not name"),
        ("no TLS", "does not speak TLS", "http://"),
        ("proxy refused", "connection refused", "Check the proxy"),
        ("proxy refused, TLS", "connection refused", "Check the proxy"),
        ("no tunnel", "the proxy answered HTTP 502", "may connect to"),
    ],
)
def test_the_advice_fits_the_failure(
    way: Way, situations: dict[str, Callable[[], Settings]], situation: str, what: str, advice: str
) -> None:
    error = error_of(way, situations[situation]())
    happened, _, then = str(error).partition("\n")
    assert "no connection to the service" in happened
    assert what in happened
    assert advice in then
    assert ("'verify'" in then) is (situation == "private authority")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("url", ["https://files.example", "http://localhost"])
def test_credentials_that_a_proxy_refuses_are_a_matter_of_configuration(way: Way, serve: Serve, url: str) -> None:
    proxy = Secret(serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").url)
    error = error_of(way, settings(url, proxy=proxy))
    assert isinstance(error, errors.ConfigurationError)
    assert error.permanent
    assert str(error).partition("\n")[2].startswith("Set extra 'proxy' of the connection to http://")


def described(error: BaseException) -> tuple[str, Cause]:
    failure = transport_failure(error, sent=False, limit=1, through_proxy=False)
    return failure.reason.removeprefix("no connection to the service: "), failure.cause


def test_a_cause_is_named_by_its_kind_and_never_by_its_text() -> None:
    error: Any = ValueError("https://h/?access_token=hunter2")
    assert described(error) == ("connection broken (ValueError)", Cause.UNREACHABLE)
    error.__cause__ = OSError("hunter2")
    error.__cause__.__context__ = ConnectionRefusedError("hunter2")
    assert described(error) == ("connection refused", Cause.REFUSED)
    looped = TimeoutError()
    looped.__context__ = looped
    assert described(looped) == ("timed out", Cause.UNREACHABLE)
