"""Why a request could not be sent, for API calls of both clients and for downloads: the advice fits the failure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pendulum
import pytest
import trustme

from airflow_provider_cloudstore.clients.asynchronous import AsyncClient, shared_session
from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.clients.downloads import DownloadClient
from airflow_provider_cloudstore.clients.reasons import transport_failure
from airflow_provider_cloudstore.protocol import errors
from airflow_provider_cloudstore.protocol.calls import DeleteFolder
from airflow_provider_cloudstore.protocol.downloads import Download
from airflow_provider_cloudstore.protocol.messages import Cause
from airflow_provider_cloudstore.protocol.results import DownloadLink
from airflow_provider_cloudstore.protocol.secrets import Secret
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import RawServer, Serve
from tests.support import settings

Fail = Callable[[Settings], errors.CloudStoreError]


def fail_blocking(own: Settings) -> errors.CloudStoreError:
    with BlockingClient(own, lambda: own) as client, pytest.raises(errors.CloudStoreError) as failed:
        client.perform(DeleteFolder("d1", own))
    return failed.value


def fail_asynchronous(own: Settings) -> errors.CloudStoreError:
    async def reload() -> Settings:
        return own

    async def run() -> None:
        async with shared_session(own) as session:
            await AsyncClient(own, reload, session).perform(DeleteFolder("d1", own))

    with pytest.raises(errors.CloudStoreError) as failed:
        asyncio.run(run())
    return failed.value


def fail_download(own: Settings) -> errors.CloudStoreError:
    link = DownloadLink("f1", "token", f"{own.base_url}/d", pendulum.now("UTC"), None)
    with DownloadClient(own, lambda _: link) as client, pytest.raises(errors.CloudStoreError) as failed:
        client.run(Download("f1", own), bytearray(), on_retry=logging.getLogger(__name__).warning)  # type: ignore[arg-type]
    return failed.value


@pytest.fixture(params=[fail_blocking, fail_asynchronous, fail_download], ids=lambda fail: fail.__name__[5:])
def fail(request: pytest.FixtureRequest) -> Fail:
    """Send one request that fails, and return the error."""
    send: Fail = request.param
    return send


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that is bound, so that nobody takes it, and at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def tls_server(serve: Serve, authority: trustme.CA, name: str) -> RawServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)

    def handshake(_: RawServer, connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True).close()

    return serve(handler=handshake)


def advice(error: errors.CloudStoreError) -> str:
    assert not error.sent
    what, _, then = str(error).partition("\n")
    assert "no connection to the service" in what
    assert "\n" not in then
    return then


def test_a_host_name_that_is_not_found_sends_nobody_to_certificates(fail: Fail) -> None:
    then = advice(fail(settings("https://no-such-host.invalid", max_attempts=1)))
    assert "DNS" in then
    assert "verify" not in then


def test_a_refused_connection_sends_nobody_to_certificates(fail: Fail, closed_port: int) -> None:
    then = advice(fail(settings(f"https://127.0.0.1:{closed_port}", max_attempts=1)))
    assert "port" in then
    assert "running" in then
    assert "verify" not in then


def test_a_host_that_does_not_answer_may_be_behind_a_firewall(fail: Fail, serve: Serve) -> None:
    server = serve(handler=lambda _, connection: connection.recv(1) and connection.recv(65536) and connection.recv(65536))
    then = advice(fail(settings(server.url.replace("http:", "https:"), max_attempts=1, timeout=0.3)))
    assert "firewall" in then
    assert "verify" not in then


def test_a_certificate_of_a_private_authority_asks_for_its_bundle(fail: Fail, serve: Serve, authority: trustme.CA) -> None:
    server = tls_server(serve, authority, "127.0.0.1")
    then = advice(fail(settings(f"https://127.0.0.1:{server.port}", max_attempts=1)))
    assert "private certificate authority" in then
    assert "'verify'" in then


def test_a_certificate_for_another_host_asks_for_its_name(
    fail: Fail, serve: Serve, authority: trustme.CA, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    server = tls_server(serve, authority, "another.example")
    then = advice(fail(settings(f"https://127.0.0.1:{server.port}", max_attempts=1, verify=str(bundle))))
    assert "does not name" in then
    assert "'verify'" not in then


def test_a_port_without_tls_asks_for_the_port_or_plain_http(fail: Fail, serve: Serve) -> None:
    server = serve(handler=lambda _, connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    then = advice(fail(settings(f"https://127.0.0.1:{server.port}", max_attempts=1)))
    assert "http://" in then
    assert "'verify'" not in then


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_reached_is_named_as_the_one_to_check(fail: Fail, closed_port: int, scheme: str) -> None:
    proxy = Secret(f"http://user:hunter2@127.0.0.1:{closed_port}")
    error = fail(settings(f"{scheme}://localhost", max_attempts=1, proxy=proxy))
    assert advice(error).startswith(("Nothing was sent. Check the proxy", "Check the proxy"))
    assert "hunter2" not in str(error)


def test_a_proxy_that_opens_no_tunnel_is_named_with_its_status(fail: Fail, serve: Serve) -> None:
    proxy = Secret(serve(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").url)
    error = fail(settings("https://files.example", max_attempts=1, proxy=proxy))
    assert "the proxy answered HTTP 502" in error.reason
    assert "may connect to" in advice(error)


@pytest.mark.parametrize("url", ["https://files.example", "http://localhost"])
def test_credentials_that_a_proxy_refuses_are_a_matter_of_configuration(fail: Fail, serve: Serve, url: str) -> None:
    proxy = Secret(serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").url)
    error = fail(settings(url, max_attempts=1, proxy=proxy))
    assert isinstance(error, errors.ConfigurationError)
    assert not error.sent
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
