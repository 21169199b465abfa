"""A user's own requests over ``hook.get_conn()``, the session of the hook's calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.support import eventually, store_file


@dataclass
class OtherServer:
    """A server that is not the service.

    :ivar seen: the requests, as they came, and ``closed`` for each connection that has ended.
    """

    url: str = ""
    seen: list[str] = field(default_factory=list)


@pytest.fixture
def other() -> Iterator[OtherServer]:
    recorded = OtherServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            recorded.seen.append(f"{self.requestline}\n{self.headers}")
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Set-Cookie", "name=value")
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"other")

        def finish(self) -> None:
            super().finish()
            recorded.seen.append("closed")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        recorded.url = f"http://127.0.0.1:{server.server_port}"
        yield recorded
        server.shutdown()
        thread.join()


def test_a_request_of_ones_own_works_between_calls_and_carries_no_token(
    emulator: Emulator, other: OtherServer, tmp_path: Path
) -> None:
    store_file(emulator)
    with CloudStoreHook() as hook:
        session = hook.get_conn()
        for work in (lambda: None, lambda: hook.create_download_link("f1"), lambda: hook.upload_from_url("ftp://127.0.0.1:9/f"),
                     lambda: hook.download("f1", tmp_path / "f"), lambda: hook.delete_folder("staging")):  # fmt: skip
            work()
            assert session.get(f"{other.url}/f?a=b").text == "other"
            assert hook.get_conn() is session
            assert emulator.access_token not in str(session.headers)
            assert "authorization" not in session.headers
            assert not session.params
    tokens = [emulator.access_token, *(token["token"] for token in emulator.state()["tokens"])]
    requests_seen = [one for one in other.seen if one != "closed"]
    assert len(requests_seen) == 5
    assert len(set(requests_seen)) == 1
    assert requests_seen[0].startswith("GET /f?a=b HTTP/1.1\n")
    assert not [token for token in tokens if token in requests_seen[0]]
    assert "authorization" not in requests_seen[0].lower()


def test_a_request_of_ones_own_follows_no_redirect_and_keeps_no_cookie(emulator: Emulator, other: OtherServer) -> None:
    with CloudStoreHook() as hook:
        assert hook.get_conn().get(f"{other.url}/moved").status_code == 302
        assert hook.get_conn().get(other.url).ok
        assert not hook.get_conn().cookies
    assert [one.partition(" HTTP")[0] for one in other.seen if one != "closed"] == ["GET /moved", "GET /"]
    assert not [one for one in other.seen if "cookie" in one.lower()]


def test_closing_the_hook_closes_the_connections_of_every_thread(emulator: Emulator, other: OtherServer) -> None:
    together = threading.Barrier(2)

    def fetch(number: int) -> requests.Session:
        session = hook.get_conn()
        session.get(other.url)
        together.wait()
        return session

    with ThreadPoolExecutor(2) as pool:
        with CloudStoreHook() as hook:
            sessions = list(pool.map(fetch, range(2)))
            assert sessions[0] is not sessions[1]
            assert other.seen.count("closed") == 0
        eventually(lambda: other.seen.count("closed") == 2)
        before = hook.get_conn()
    assert before not in sessions  # the hook can be used again
    hook.close()
