from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.__main__ import main
from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import eventually, store_file

API = "/cloud/api/v2"


def headers_of(emulator: Emulator) -> dict[str, str]:
    return {"Authorization": f"Bearer {emulator.access_token}"}


def post(emulator: Emulator, path: str, **more: Any) -> requests.Response:
    return requests.post(f"{emulator.url}{API}{path}", headers=headers_of(emulator), timeout=5, **more)


def queue(emulator: Emulator, url: str) -> requests.Response:
    return post(emulator, "/file/url_upload_add", data={"url": url})


def make_link(emulator: Emulator, file_id: str) -> requests.Response:
    query = {"access_token": emulator.access_token, "file_id": file_id}
    return requests.get(f"{emulator.url}{API}/file/download", params=query, timeout=5)


def test_an_upload_is_fetched_after_the_response_and_then_served_for_a_token(emulator: Emulator) -> None:
    with Emulator() as source:
        store_file(source, content=b"x" * 3_000_000)
        response = queue(emulator, make_link(source, "f1").json()["data"]["download_url"])
        data = response.json()["data"]
        assert response.status_code == 200
        assert data["folder_id"] == "staging"
        eventually(lambda: emulator.state()["files"][0]["state"] == "stored")
    got = requests.get(make_link(emulator, data["file_id"]).json()["data"]["download_url"], timeout=5)
    assert got.content == b"x" * 3_000_000
    assert emulator.state()["tokens"][0]["downloads"] == 1


def test_a_source_that_cannot_be_fetched_leaves_a_failed_file_and_no_link(emulator: Emulator) -> None:
    for url in (f"{emulator.url}/nowhere", "http://127.0.0.1:9/refused", f"http://{'a' * 300}/"):
        file_id = queue(emulator, url).json()["data"]["file_id"]
        eventually(lambda: emulator.state()["files"][-1]["state"] == "failed")
        assert make_link(emulator, file_id).status_code == 404


@pytest.mark.parametrize("host", ["https://example.com", "{own}/_emulator/sources"])
def test_a_source_of_any_name_is_made_up(emulator: Emulator, host: str) -> None:
    emulator.serve(b"mine", "mine.csv")
    for name, content in (("sales.csv", b"name\nsales.csv\n"), ("mine.csv", b"mine")):
        file_id = queue(emulator, f"{host.replace('{own}', emulator.url)}/{name}?sig=1").json()["data"]["file_id"]
        eventually(lambda: emulator.state()["files"][-1]["state"] == "stored")
        link = make_link(emulator, file_id).json()["data"]
        assert requests.get(link["download_url"], timeout=5).content == content


def test_an_upload_waits_in_the_queue_for_the_delay_and_a_token_expires_after_its_ttl() -> None:
    with Emulator(fetch_delay=0.3, token_ttl=0.3) as emulator:
        began = time.monotonic()
        file_id = queue(emulator, emulator.serve(b"x")).json()["data"]["file_id"]
        link = eventually(lambda: make_link(emulator, file_id).json().get("data"))
        assert time.monotonic() - began >= 0.3
        assert requests.get(link["download_url"], timeout=5).content == b"x"
        eventually(lambda: requests.get(link["download_url"], timeout=5).status_code == 403)
        assert time.monotonic() - began >= 0.6


def test_deleting_a_folder_takes_files_tokens_and_queued_uploads_with_it() -> None:
    with Emulator(fetch_delay=60) as emulator:
        store_file(emulator)
        store_file(emulator, file_id="f2", folder_id="other")
        url = make_link(emulator, "f1").json()["data"]["download_url"]
        queue(emulator, "http://127.0.0.1:9/slow")
        for status in (200, 404):
            assert post(emulator, "/folder/delete", data={"folder_id": "staging"}).status_code == status
        state = emulator.state()
        assert [stored["file_id"] for stored in state["files"]] == ["f2"]
        assert state["folders"] == ["other"]
        assert state["tokens"] == []
        assert requests.get(url, timeout=5).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("POST", "/folder/delete", {"data": {"folder_id": "staging"}, "headers": {"Authorization": "Basic TOKEN"}}, 401),
        ("POST", "/folder/delete", {"data": {"folder_id": ""}}, 400),
        ("POST", "/folder/delete", {"data": {"folder_id": "unknown"}}, 404),
        ("GET", "/file/url_upload_add", {}, 405),
        ("GET", "/file/download", {"params": {"file_id": "f1"}}, 401),
        ("GET", "/file/download", {"params": {"access_token": "TOKEN", "file_id": "unknown"}}, 404),
    ],
)
def test_an_invalid_request_gets_its_error_status_in_an_envelope(
    emulator: Emulator, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    more = json.loads(json.dumps(more).replace("TOKEN", emulator.access_token))
    response = requests.request(method, f"{emulator.url}{API}{path}", timeout=5, **{"headers": headers_of(emulator), **more})
    assert response.status_code == status
    assert response.json()["status"] == "error"


def test_a_port_in_use_is_reported_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
        assert f"127.0.0.1:{port}" in capsys.readouterr().err
        with pytest.raises(OSError, match="in use"), Emulator(port=port):
            pytest.fail("it started on a port in use")


def test_a_range_is_what_the_request_names_of_the_version_that_if_range_names(emulator: Emulator) -> None:
    emulator.put_file(b"0123456789", "f1")
    url = make_link(emulator, "f1").json()["data"]["download_url"]
    for wanted, status, body, content_range in (("3-5", 206, b"345", "3-5/10"), ("10-", 416, b"", "*/10")):
        found = requests.get(url, headers={"Range": f"bytes={wanted}"}, timeout=5)
        assert (found.status_code, found.content, found.headers["Content-Range"]) == (status, body, f"bytes {content_range}")
    headers = {"Range": "bytes=5-", "If-Range": requests.get(url, timeout=5).headers["ETag"]}
    assert requests.get(url, headers=headers, timeout=5).content == b"56789"
    emulator.put_file(b"abcdefghij", "f1")
    whole = requests.get(url, headers=headers, timeout=5)
    assert (whole.status_code, whole.content) == (200, b"abcdefghij")
