from __future__ import annotations

from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from airflow_provider_cloudstore.protocol.operations import OPERATIONS
from tests.support import eventually


def post(emulator: Emulator, path: str, **form: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {emulator.access_token}"}
    response = requests.post(f"{emulator.url}/cloud/api/v2{path}", form, headers=headers, timeout=5)
    return response.status_code, response.json()


@pytest.mark.parametrize("service", ["api-v2", "yetishare"])
def test_every_operation_has_a_route(service: str) -> None:
    with Emulator(service=service) as emulator:
        routes = emulator.call(lambda running: {(one.method, one.path.partition("/v2")[2]) for one in running.calls()})
    missing = {(one.method, one.path.removeprefix("/cloud/api/v2")) for one in OPERATIONS} - routes
    assert not missing


def test_a_run_uploads_into_a_folder_of_its_own_and_deletes_it_with_all_below(emulator: Emulator) -> None:
    created = post(emulator, "/folder/create", folder_name="run-1")[1]["data"]["folder_id"]
    below = post(emulator, "/folder/create", folder_name="below", parent_id=created)[1]["data"]["folder_id"]
    for folder_id in (created, below):
        uploaded = post(emulator, "/file/url_upload_add", url=emulator.serve(b"x"), folder_id=folder_id)
        assert uploaded[1]["data"]["folder_id"] == folder_id
    post(emulator, "/file/url_upload_add", url=emulator.serve(b"of another run"))
    eventually(lambda: {one["state"] for one in emulator.state()["files"]} == {"stored"})
    assert post(emulator, "/folder/delete", folder_id=created)[0] == 200
    state = emulator.state()
    assert (state["folders"], [one["folder_id"] for one in state["files"]]) == (["staging"], ["staging"])


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/file/url_upload_add", {"url": "https://example.com/a", "folder_id": "nowhere"}),
        ("/folder/create", {"folder_name": "a", "parent_id": "nowhere"}),
    ],
)
def test_a_folder_that_does_not_exist_takes_nothing(emulator: Emulator, path: str, form: dict[str, str]) -> None:
    assert post(emulator, path, **form)[0] == 404
    assert (emulator.state()["files"], emulator.state()["folders"]) == ([], ["staging"])


@pytest.mark.parametrize(
    "path", ["/folder/delete", "/file/url_upload_add", "/file/download", "/file/rename", "/folder/create", "/folder/list"]
)
def test_a_missing_field_is_a_400(emulator: Emulator, path: str) -> None:
    token = emulator.access_token
    method = "GET" if path in {"/file/download", "/folder/list"} else "POST"
    where: dict[str, Any] = (
        {"params": {"access_token": token}} if method == "GET" else {"headers": {"Authorization": f"Bearer {token}"}}
    )
    response = requests.request(method, f"{emulator.url}/cloud/api/v2{path}", timeout=5, **where)
    assert response.status_code == 400
