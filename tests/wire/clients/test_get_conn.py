"""A user's own requests over ``hook.get_conn()``, the session of the hook's calls."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from tests.raw_server import OK, stay_open
from tests.support import store_file
from tests.wire.clients.conftest import Serve


def test_a_request_of_ones_own_works_between_calls_and_carries_no_token(emulator: Emulator, serve: Serve, tmp_path: Path) -> None:
    store_file(emulator)
    other = serve(OK, then=stay_open)
    with CloudStoreHook() as hook:
        session = hook.get_conn()
        for work in (hook.create_download_link, lambda file_id: hook.download(file_id, tmp_path / "f")):
            work("f1")
            assert session.get(f"{other.url}/f?a=b").text == "{}"
            assert hook.get_conn() is session
            assert emulator.access_token not in str(session.headers)
    (request,) = {request.decode() for request in other.requests}
    assert request.startswith("GET /f?a=b HTTP/1.1\r\n")
    assert "authorization" not in request.lower()


def test_a_request_of_ones_own_follows_no_redirect_and_keeps_no_cookie(emulator: Emulator, serve: Serve) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nSet-Cookie: name=value\r\nContent-Length: 0\r\n\r\n"
    other = serve(moved, OK, then=stay_open)
    with CloudStoreHook() as hook:
        assert hook.get_conn().get(f"{other.url}/moved").status_code == 302
        assert hook.get_conn().get(other.url).ok
    assert [request.partition(b" HTTP")[0] for request in other.requests] == [b"GET /moved", b"GET /"]
    assert "cookie" not in str(other.requests).lower()
