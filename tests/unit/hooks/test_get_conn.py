"""A user's own requests over ``hook.get_conn()``, the session of the hook's calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.support import OtherServer, eventually, other_server, store_file


@pytest.fixture
def other() -> Iterator[OtherServer]:
    with other_server() as server:
        yield server


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
    assert len(other.requests) == 5
    (request,) = set(other.requests)
    assert request.startswith("GET /f?a=b HTTP/1.1\n")
    assert not [token for token in tokens if token in request]
    assert "authorization" not in request.lower()


def test_a_request_of_ones_own_follows_no_redirect_and_keeps_no_cookie(emulator: Emulator, other: OtherServer) -> None:
    with CloudStoreHook() as hook:
        assert hook.get_conn().get(f"{other.url}/moved").status_code == 302
        assert hook.get_conn().get(other.url).ok
        assert not hook.get_conn().cookies
    assert [request.partition(" HTTP")[0] for request in other.requests] == ["GET /moved", "GET /"]
    assert "cookie" not in str(other.requests).lower()


def test_closing_the_hook_closes_the_connections_of_every_thread(emulator: Emulator, other: OtherServer) -> None:
    together = threading.Barrier(2)

    def fetch(number: int) -> requests.Session:
        session = hook.get_conn()
        session.get(other.url)
        together.wait()
        return session

    with ThreadPoolExecutor(2) as pool:
        with CloudStoreHook() as hook:
            sessions = [hook.get_conn(), *pool.map(fetch, range(2))]
            assert len({id(session) for session in sessions}) == 3
            assert other.closed == 0
        eventually(lambda: other.closed == 2)
        assert hook.get_conn() not in sessions  # the hook can be used again
    hook.close()
