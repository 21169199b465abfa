"""The blocking client's ``requests.Session``: a user's own requests take nothing from our calls, and leave nothing for them."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.messages import FailureKind, Response
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER
from airflow_provider_cloudstore.protocol.settings import Settings
from tests.clients.conftest import OK, Authority, Serve, stay_open
from tests.raw_server import RawServer
from tests.support import TOKEN, settings


@pytest.fixture
def service(serve: Serve) -> RawServer:
    return serve(OK, then=stay_open)


@pytest.fixture
def own(service: RawServer) -> Settings:
    return settings(service.url)


@pytest.fixture
def client(own: Settings) -> Iterator[Any]:
    with BlockingClient(own, lambda: own) as client:
        yield client


def call(client: Any, own: Settings) -> None:
    """Two calls of ours: one has the token in its query, the other in a header, and a body."""
    for operation in (CREATE_DOWNLOAD_LINK, DELETE_FOLDER):
        assert isinstance(client.send(operation.request("f1", own), 5), Response)


def targets(server: RawServer) -> list[str]:
    return [request.split(b" ")[1].decode() for request in server.requests]


def test_each_thread_has_one_session_of_its_own(client: Any) -> None:
    assert isinstance(client.session, requests.Session)
    assert client.session is client.session
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: client.session).result() is not client.session


def test_a_request_of_ones_own_goes_where_it_is_sent_before_and_after_our_calls(
    client: Any, own: Settings, service: RawServer, serve: Serve
) -> None:
    other = serve(OK, then=stay_open)
    for _ in range(2):
        assert client.session.get(f"{other.url}/a/b?c=d").json() == {}
        assert client.session.post(f"{other.url}/e?f=g", data={"h": "i"}).json() == {}
        assert client.session.get(f"{service.url}/j?k=l").json() == {}
        call(client, own)
    assert targets(other) == ["/a/b?c=d", "/e?f=g"] * 2
    assert [request.endswith(b"\r\n\r\nh=i") for request in other.requests] == [False, True] * 2
    link, delete = (
        operation.request("f1", own).url.removeprefix(own.base_url) for operation in (CREATE_DOWNLOAD_LINK, DELETE_FOLDER)
    )
    assert targets(service) == ["/j?k=l", link, delete] * 2
    sent_by_user = [*other.requests, service.requests[0], service.requests[3]]
    assert not [request for request in sent_by_user if TOKEN.encode() in request or b"Authorization" in request]


def test_a_request_of_ones_own_follows_no_redirect_and_keeps_no_cookie(
    client: Any, own: Settings, service: RawServer, serve: Serve
) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {service.url}/there\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    other = serve(head.encode(), then=stay_open)
    for _ in range(2):
        assert client.session.get(other.url).status_code == 302
        call(client, own)
    assert len(other.requests) == 2
    assert "/there" not in targets(service)
    assert not [request for request in [*other.requests, *service.requests] if b"cookie" in request.lower()]


def test_neither_a_netrc_file_nor_a_proxy_takes_part_in_a_request_of_ones_own(
    client: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    other = serve(OK)
    assert client.session.get(other.url).status_code == 200
    assert b"Authorization" not in other.requests[0]


def test_no_log_shows_the_query_of_a_request_of_ones_own(client: Any, serve: Serve, logged: pytest.LogCaptureFixture) -> None:
    assert client.session.get(f"{serve(OK).url}/a?sig=hunter2").status_code == 200
    assert logged.records
    assert "hunter2" not in logged.text


def test_a_request_of_ones_own_without_verification_weakens_none_of_ours(serve: Serve, authority: Authority) -> None:
    context = authority.server_context("localhost")

    def respond(server: RawServer, connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as over_tls:
            while server.read_request(over_tls):
                over_tls.sendall(OK)

    server = serve(handler=respond)
    own = settings(f"https://localhost:{server.port}")
    with BlockingClient(own, lambda: own) as opened:
        client: Any = opened
        with warnings.catch_warnings(action="ignore"), suppress(requests.exceptions.SSLError):  # whether it is heeded or not
            client.session.get(f"{own.base_url}/a", verify=False)
        outcome = client.send(DELETE_FOLDER.request("d1", own), 5)
    assert outcome.kind is FailureKind.NEVER_SENT
    assert "TLS certificate verification failed" in outcome.reason
    assert targets(server) in ([], ["/a"])
