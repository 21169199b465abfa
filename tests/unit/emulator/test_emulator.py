from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
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
    for url in (f"{emulator.url}/nowhere", "http://127.0.0.1:9/refused", "no url"):
        file_id = queue(emulator, url).json()["data"]["file_id"]
        eventually(lambda: emulator.state()["files"][-1]["state"] == "failed")
        assert make_link(emulator, file_id).status_code == 404
    assert emulator.state()["effects"] == {"upload": 3}


def test_a_token_expires_after_its_ttl() -> None:
    with Emulator(token_ttl=0.3) as emulator:
        store_file(emulator)
        url = make_link(emulator, "f1").json()["data"]["download_url"]
        assert requests.get(url, timeout=5).content == b"hello"
        eventually(lambda: requests.get(url, timeout=5).status_code == 403)


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
        ("POST", "/folder/delete", {"data": {"folder_id": "staging"}, "headers": {}}, 401),
        ("POST", "/folder/delete", {"data": {"folder_id": "staging"}, "headers": {"Authorization": "Bearer wrong"}}, 401),
        ("POST", "/folder/delete", {"data": {}}, 400),
        ("POST", "/folder/delete", {"data": {"folder_id": ""}}, 400),
        ("POST", "/folder/delete", {"json": {"folder_id": "staging"}}, 400),
        ("POST", "/folder/delete", {"data": {"folder_id": "unknown"}}, 404),
        ("GET", "/folder/delete", {}, 405),
        ("POST", "/file/url_upload_add", {"data": {}}, 400),
        ("GET", "/file/url_upload_add", {}, 405),
        ("POST", "/file/download", {}, 405),
        ("GET", "/file/download", {"params": {"file_id": "f1"}}, 401),
        ("GET", "/file/download", {"params": {"access_token": "TOKEN"}}, 400),
        ("GET", "/file/download", {"params": {"access_token": "TOKEN", "file_id": "unknown"}}, 404),
        ("GET", "/elsewhere", {}, 404),
    ],
)
def test_an_invalid_request_gets_its_error_status_in_an_envelope(
    emulator: Emulator, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    if "params" in more:
        more = {"params": {key: value.replace("TOKEN", emulator.access_token) for key, value in more["params"].items()}}
    response = requests.request(method, f"{emulator.url}{API}{path}", timeout=5, **{"headers": headers_of(emulator), **more})
    assert response.status_code == status
    assert response.json()["status"] == "error"


@pytest.mark.parametrize(
    ("shape", "uploaded", "linked", "refused"),
    [
        ("envelope", '"_status": "success"', '"download_url"', '"status": "error"'),
        ("plain", '"file_id"', '"download_token"', '"message"'),
        ("text", "", "", "Could not"),
    ],
)
def test_results_come_in_three_shapes(shape: str, uploaded: str, linked: str, refused: str) -> None:
    with Emulator(answers=shape) as emulator:
        store_file(emulator)
        upload, link = queue(emulator, "http://127.0.0.1:9/x").text, make_link(emulator, "f1").text
        assert uploaded in upload
        assert linked in link
        assert refused in make_link(emulator, "unknown").text
        if shape == "text":
            assert upload == emulator.state()["files"][-1]["file_id"]
            assert link == emulator.state()["tokens"][0]["token"]


def test_a_rotation_may_overlap_and_ends_with_only_the_new_token(emulator: Emulator) -> None:
    def rotate(valid: str) -> list[int]:
        assert requests.put(f"{emulator.url}/_emulator/access-token", data=valid, timeout=5).status_code == 204
        headers = [{"Authorization": f"Bearer {token}"} for token in ("old", "new", "")]
        url, data = f"{emulator.url}{API}/file/url_upload_add", {"url": "ftp://h/f"}
        return [requests.post(url, data, headers=one, timeout=5).status_code for one in headers]

    assert rotate("old\nnew") == [200, 200, 401]
    assert rotate("new") == [401, 200, 401]
    assert emulator.access_token == "new"


def test_faults_are_injected_over_http_and_used_up_in_order(emulator: Emulator) -> None:
    base = f"{emulator.url}/_emulator/faults"
    script = [{"kind": "status", "status": 503, "operation": "link", "times": 2}, {"kind": "status", "status": 418}]
    assert requests.post(base, json=script, timeout=5).status_code == 204
    assert queue(emulator, "ftp://h/f").status_code == 418
    assert [make_link(emulator, "x").status_code for _ in range(3)] == [503, 503, 404]
    assert requests.post(base, json={"kind": "status", "times": 0, "body": "b", "headers": {"X": "y"}}, timeout=5).ok
    responses = [make_link(emulator, "x") for _ in range(3)]
    assert {(response.status_code, response.text, response.headers["X"]) for response in responses} == {(500, "b", "y")}
    assert requests.delete(base, timeout=5).status_code == 204
    assert make_link(emulator, "x").status_code == 404


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (5, "must be an object with a 'kind'"),
        ({}, "must be an object with a 'kind'"),
        ({"kind": "unknown"}, "'kind' must be one of status, delay"),
        ({"kind": "status", "operation": "x"}, "'operation' must be one of"),
        ({"kind": "status", "times": True}, "'times' must be of the type int"),
        ({"kind": "status", "status": "500"}, "'status' must be of the type int"),
        ({"kind": "status", "headers": "X: y"}, "'headers' must be of the type dict"),
        ({"kind": "status", "body": None}, "'body' must be of the type str"),
        ({"kind": "delay", "seconds": "1"}, "'seconds' must be of the type float"),
        ({"kind": "status", "effect": "yes"}, "'effect' must be of the type bool"),
    ],
)
def test_an_invalid_fault_is_rejected_with_a_reason(
    emulator: Emulator, capsys: pytest.CaptureFixture[str], fault: Any, reason: str
) -> None:
    response = requests.post(f"{emulator.url}/_emulator/faults", data=json.dumps(fault), timeout=5)
    assert response.status_code == 400
    assert reason in response.text
    with pytest.raises(SystemExit):
        main(["--fault", json.dumps(fault)])
    assert reason in capsys.readouterr().err


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    arguments = ["--access-token", "abc", "--fault", '{"kind": "status", "status": 418}']
    with subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_cloudstore.emulator", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_prints_its_address_and_an_airflow_connection_and_stops_cleanly(
    program: subprocess.Popen[str], number: int
) -> None:
    assert program.stdout is not None
    first, second = program.stdout.readline(), program.stdout.readline()
    url = first.split()[2]
    assert f'"host": "{url}", "password": "abc"' in second
    assert requests.get(f"{url}{API}/file/download", timeout=5).status_code == 418
    os.kill(program.pid, number)
    rest, errors = program.communicate(timeout=10)
    own = [
        line for line in errors.splitlines() if "alembic.runtime.plugins" not in line
    ]  # what Airflow 3.1 logs when it is imported
    assert (program.returncode, rest, own) == (0, "Stopped.\n", [])


def test_a_port_in_use_is_reported_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 1
        assert f"127.0.0.1:{port}" in capsys.readouterr().err
        with pytest.raises(OSError, match="in use"), Emulator(port=port):
            pytest.fail("it started on a port in use")


def test_nothing_is_left_on_disk_when_it_stops() -> None:
    with Emulator() as emulator:
        store_file(emulator)
        folder = emulator.service.store.folder
        assert list(folder.iterdir())
    assert not folder.exists()


def test_it_creates_folders_and_files_and_serves_sources_from_python_and_over_http(emulator: Emulator) -> None:
    base = f"{emulator.url}/_emulator"
    assert emulator.make_folder("tmp") == "tmp"
    assert emulator.put_file(b"one", "f1", "tmp") == "f1"
    assert requests.put(f"{base}/folders/new", timeout=5).status_code == 204
    assert requests.put(f"{base}/files/f2?folder_id=other", data=b"two", timeout=5).status_code == 204
    assert requests.get(f"{base}/state", timeout=5).json()["folders"] == ["new", "other", "staging", "tmp"]
    urls = [make_link(emulator, file_id).json()["data"]["download_url"] for file_id in ("f1", "f2")]
    assert [requests.get(url, timeout=5).content for url in urls] == [b"one", b"two"]
    assert requests.put(f"{base}/sources/by-http", data=b"three", timeout=5).status_code == 204
    assert requests.get(f"{base}/sources/by-http", timeout=5).content == b"three"
    assert requests.get(f"{base}/sources/unknown", timeout=5).status_code == 404
    large = os.urandom(3_000_000)
    file_id = queue(emulator, emulator.serve(large, "my report.csv")).json()["data"]["file_id"]
    eventually(lambda: emulator.state()["files"][-1]["state"] == "stored")
    assert requests.get(make_link(emulator, file_id).json()["data"]["download_url"], timeout=5).content == large
