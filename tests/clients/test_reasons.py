"""Why a request could not be sent, for API calls of both clients and for downloads: the advice fits the failure."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.messages import Cause
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import Authority, Minter, RawServer, Serve, Target, download_client
from tests.support import settings

Fail = Callable[[Settings], errors.CloudStoreError]


def fail_blocking(own: Settings) -> None:
    with BlockingClient(own, lambda: own) as client:
        client.perform(DeleteFolder("d1", own))


def fail_asynchronous(own: Settings) -> None:
    async def reload() -> Settings:
        return own

    async def run() -> None:
        async with shared_session(own) as session:
            await AsyncClient(own, reload, session).perform(DeleteFolder("d1", own))

    asyncio.run(run())


def fail_download(own: Settings) -> None:
    with download_client(own, Minter(f"{own.base_url}/d")) as client:
        client.run(Download("f1", own), Target(), on_retry=print)


@pytest.fixture(params=[fail_blocking, fail_asynchronous, fail_download], ids=lambda fail: fail.__name__[5:])
def fail(request: pytest.FixtureRequest) -> Fail:
    """Send one request that is never sent, and return the error."""

    def error_of(own: Settings) -> errors.CloudStoreError:
        with pytest.raises(errors.CloudStoreError) as failed:
            request.param(replace(own, max_attempts=1))
        assert not failed.value.sent
        return failed.value

    return error_of


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that is bound, so that nobody takes it, and at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def tls_server(serve: Serve, authority: Authority, name: str) -> str:
    context = authority.server_context(name)

    def handshake(_: RawServer, connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True).close()

    return https(serve(handler=handshake))


def https(server: RawServer) -> str:
    return server.url.replace("http:", "https:")


def advice(error: errors.CloudStoreError) -> str:
    what, _, then = str(error).partition("\n")
    assert "no connection to the service" in what
    assert "\n" not in then
    return then


def test_a_host_name_that_is_not_found_sends_nobody_to_certificates(fail: Fail) -> None:
    then = advice(fail(settings("https://no-such-host.invalid")))
    assert "DNS" in then
    assert "verify" not in then


def test_a_refused_connection_sends_nobody_to_certificates(fail: Fail, closed_port: int) -> None:
    then = advice(fail(settings(f"https://127.0.0.1:{closed_port}")))
    assert "port" in then
    assert "running" in then
    assert "verify" not in then


def test_a_host_that_does_not_answer_may_be_behind_a_firewall(fail: Fail, serve: Serve) -> None:
    server = serve(handler=lambda _, connection: connection.recv(1) and connection.recv(65536) and connection.recv(65536))
    then = advice(fail(settings(https(server), timeout=0.3)))
    assert "firewall" in then
    assert "verify" not in then


def test_a_certificate_of_a_private_authority_asks_for_its_bundle(fail: Fail, serve: Serve, authority: Authority) -> None:
    then = advice(fail(settings(tls_server(serve, authority, "127.0.0.1"))))
    assert "private certificate authority" in then
    assert "'verify'" in then


def test_a_certificate_for_another_host_asks_for_its_name(fail: Fail, serve: Serve, authority: Authority) -> None:
    then = advice(fail(settings(tls_server(serve, authority, "another.example"), verify=authority.bundle)))
    assert "does not name" in then
    assert "'verify'" not in then


def test_a_port_without_tls_asks_for_the_port_or_plain_http(fail: Fail, serve: Serve) -> None:
    server = serve(handler=lambda _, connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    then = advice(fail(settings(https(server))))
    assert "http://" in then
    assert "'verify'" not in then


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_reached_is_named_as_the_one_to_check(fail: Fail, closed_port: int, scheme: str) -> None:
    error = fail(settings(f"{scheme}://localhost", proxy=Secret(f"http://user:hunter2@127.0.0.1:{closed_port}")))
    assert advice(error).startswith(("Nothing was sent. Check the proxy", "Check the proxy"))
    assert "connection refused" in str(error)
    assert "hunter2" not in str(error)


def test_a_proxy_that_opens_no_tunnel_is_named_with_its_status(fail: Fail, serve: Serve) -> None:
    proxy = Secret(serve(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").url)
    error = fail(settings("https://files.example", proxy=proxy))
    assert "the proxy answered HTTP 502" in error.reason
    assert "may connect to" in advice(error)


@pytest.mark.parametrize("url", ["https://files.example", "http://localhost"])
def test_credentials_that_a_proxy_refuses_are_a_matter_of_configuration(fail: Fail, serve: Serve, url: str) -> None:
    proxy = Secret(serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").url)
    error = fail(settings(url, proxy=proxy))
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
