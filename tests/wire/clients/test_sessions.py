"""The blocking client's ``requests.Session``: a user's own requests take nothing from our calls, and leave nothing for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cloudstore.clients.blocking import BlockingClient
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK
from tests.raw_server import RawServer
from tests.support import TOKEN, settings
from tests.wire.clients.conftest import OK, Serve, stay_open


@pytest.fixture
def service(serve: Serve) -> RawServer:
    return serve(OK, then=stay_open)


@pytest.fixture
def client(service: RawServer) -> Iterator[Any]:
    own = settings(service.url)
    with BlockingClient(own, lambda: own) as client:
        yield client


def test_a_request_of_ones_own_goes_where_it_is_sent_before_and_after_our_calls(client: Any, service: RawServer) -> None:
    call = CREATE_DOWNLOAD_LINK.request("f1", client.settings)
    for _ in range(2):
        assert client.session.post(f"{service.url}/a?b=c", data={"d": "e"}).json() == {}
        assert client.send(call, 5).body == b"{}"
    targets = [request.split(b" ")[1].decode() for request in service.requests]
    assert targets == ["/a?b=c", call.url.removeprefix(service.url)] * 2
    for request in service.requests[::2]:
        assert request.endswith(b"\r\n\r\nd=e")
        assert TOKEN.encode() not in request


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
