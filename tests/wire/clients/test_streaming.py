"""What a download requests one after the other; what one request does is tested with the clients'."""

from __future__ import annotations

import gzip
import time
from typing import Any

import pytest

from tests.support import TOKEN, settings
from tests.wire.clients.conftest import LINK_TOKEN, Serve, download, response

DATA = "".join(f"{number:8}" for number in range(2**15))
TAG = 'ETag: "v1"'


def cut(at: int, *headers: str) -> bytes:
    """A response with the whole file that ends early."""
    return response("200 OK", *headers, body=DATA)[: at - len(DATA)]


def rest(start: int, end: int = len(DATA)) -> bytes:
    """A response with the rest of the file that ends early at ``end``."""
    headers = TAG, f"Content-Range: bytes {start}-{len(DATA) - 1}/{len(DATA)}"
    return response("206 Partial", *headers, body=DATA[start:])[: end - len(DATA) or None]


def download_from(url: str, **more: Any) -> Any:
    with download(settings(**more), url) as send:
        return send()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def test_a_download_through_lost_connections_and_an_ended_link_is_whole(serve: Serve) -> None:
    lost = [response("500 Oops"), cut(70_000), cut(1000, TAG), rest(1000, 200_000)]
    server = serve(*lost, response("403 Forbidden"), rest(200_000))
    assert download_from(f"{server.url}/f?a=NUMBER", max_attempts=6) == DATA
    requests = [request.decode().splitlines() for request in server.requests]
    assert [lines[0] for lines in requests] == [f"GET /f?a={number} HTTP/1.1" for number in range(1, 7)]
    ranges = [[line for line in lines if line.startswith("Range:")] for lines in requests]
    assert ranges == [[], [], [], ["Range: bytes=1000-"], ["Range: bytes=200000-"], ["Range: bytes=200000-"]]
    assert all('If-Range: "v1"' in lines for lines in requests[3:])


def test_a_file_that_was_replaced_meanwhile_is_not_mixed(serve: Serve) -> None:
    changed = rest(70_000).replace(b"v1", b"v2")
    server = serve(cut(70_000, TAG), changed, response("200 OK", 'ETag: "v2"', body=DATA[999::-1]))
    assert download_from(server.url) == DATA[999::-1]  # shorter than what was received
    assert len(server.requests) == 3


def test_a_file_that_is_stored_gzipped_comes_as_it_is_stored(serve: Serve) -> None:
    stored = gzip.compress(b"a,b\n" * 1000)
    headers = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(stored)}\r\n{TAG}\r\n\r\n".encode()
    rest_of_it = f"Content-Range: bytes 10-{len(stored) - 1}/{len(stored)}\r\nContent-Length: {len(stored) - 10}"
    resumed = f"HTTP/1.1 206 Partial\r\nContent-Encoding: gzip\r\n{TAG}\r\n{rest_of_it}\r\n\r\n".encode()
    server = serve(headers + stored[:10], resumed + stored[10:])
    assert download_from(server.url).encode("latin-1") == stored
    assert len(server.requests) == 2


def test_a_redirect_is_followed_without_a_secret_and_logged_without_one(serve: Serve, logged: pytest.LogCaptureFixture) -> None:
    other = serve(response("404 Not Found"), response("200 OK", body=DATA))
    server = serve(response("302 Found", f"Location: {other.url}/there?sig=hunter2"))
    assert download_from(f"{server.url}/{LINK_TOKEN}?t={LINK_TOKEN}") == DATA
    for request in other.requests:
        line, *headers = request.decode().split("\r\n")
        assert line == "GET /there?sig=hunter2 HTTP/1.1"
        assert [header.partition(":")[0] for header in headers if header] == ["Host", "User-Agent", "Accept-Encoding", "Accept"]
        assert not any(secret in request.decode() for secret in (TOKEN, LINK_TOKEN))
    assert not any(secret in logged.text for secret in ("link+token", "link%2Btoken", "hunter2"))


def test_a_proxy_of_the_environment_is_that_of_the_downloads_host(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(response("200 OK", body="abc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY")
    assert download_from(server.url) == "abc"
