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
        routes = emulator.call(lambda running: {(method, path) for method, path, *_ in running.calls()})
    missing = {(one.method, one.path.removeprefix("/cloud/api/v2")) for one in OPERATIONS} - routes
    assert not missing


def test_a_run_uploads_into_a_folder_of_its_own_and_deletes_it(emulator: Emulator) -> None:
    folder_id = emulator.make_folder("run-1")
    uploaded = post(emulator, "/file/url_upload_add", url=emulator.serve(b"x"), folder_id=folder_id)
    assert uploaded[1]["data"]["folder_id"] == folder_id
    post(emulator, "/file/url_upload_add", url=emulator.serve(b"of another run"))
    eventually(lambda: {one["state"] for one in emulator.state()["files"]} == {"stored"})
    assert post(emulator, "/folder/delete", folder_id=folder_id)[0] == 200
    state = emulator.state()
    assert (state["folders"], [one["folder_id"] for one in state["files"]]) == (["staging"], ["staging"])
