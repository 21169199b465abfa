"""A user's own requests over ``hook.get_conn()``, the session of the hook's calls."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.raw_server import RawServer
from tests.support import store_file


def respond(server: RawServer, connection: socket.socket) -> None:
    """Respond to each request with a cookie and ``other``, and to that of ``/moved`` with a redirect."""
    while request := server.read_request(connection):
        status = b"302 Found" if request.startswith(b"GET /moved ") else b"200 OK"
        headers = b"Location: /elsewhere\r\nSet-Cookie: name=value\r\nContent-Length: 5"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n\r\nother")


@pytest.fixture
def other() -> Iterator[RawServer]:
    """A server that is not the service."""
    server = RawServer(respond)
    yield server
    server.close()


def test_a_request_of_ones_own_works_between_calls_and_carries_no_token(
    emulator: Emulator, other: RawServer, tmp_path: Path
) -> None:
    store_file(emulator)
    with CloudStoreHook() as hook:
        session = hook.get_conn()
        for work in (hook.create_download_link, lambda file_id: hook.download(file_id, tmp_path / "f")):
            work("f1")
            assert session.get(f"{other.url}/f?a=b").text == "other"
            assert hook.get_conn() is session
            assert emulator.access_token not in str(session.headers)
    (request,) = {request.decode() for request in other.requests}
    assert request.startswith("GET /f?a=b HTTP/1.1\r\n")
    assert "authorization" not in request.lower()


def test_a_request_of_ones_own_follows_no_redirect_and_keeps_no_cookie(emulator: Emulator, other: RawServer) -> None:
    with CloudStoreHook() as hook:
        assert hook.get_conn().get(f"{other.url}/moved").status_code == 302
        assert hook.get_conn().get(other.url).ok
        assert not hook.get_conn().cookies
    assert [request.partition(b" HTTP")[0] for request in other.requests] == [b"GET /moved", b"GET /"]
    assert "cookie" not in str(other.requests).lower()
