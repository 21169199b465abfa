from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator
from tests.support import eventually

REAUTHENTICATE = "Could not validate access_token and account_id, please reauthenticate or try again."
WRONG_KEYS = "Could not authenticate user. The key pair may be invalid or your account may be locked from too many failed logins."
Call = Callable[..., Any]


@pytest.fixture
def service() -> Iterator[Emulator]:
    with Emulator(service="yetishare") as running:
        yield running


def send(emulator: Emulator, path: str, method: str = "POST", **values: Any) -> Any:
    """Send a call as the servers read it, and return the JSON, which comes with HTTP 200."""
    carried: dict[str, Any] = {"data" if method == "POST" else "params": values}
    response = requests.request(method, f"{emulator.url}/api/v2{path}", timeout=5, **carried)
    assert response.status_code == 200
    return response.json()


def keys_of(emulator: Emulator) -> dict[str, str]:
    connection = json.loads(emulator.connection)
    return {"key1": connection["login"], "key2": connection["password"]}


def authorize(emulator: Emulator) -> dict[str, str]:
    found: dict[str, str] = send(emulator, "/authorize", **keys_of(emulator))["data"]
    return found


@pytest.fixture
def call(service: Emulator) -> Call:
    """Sends calls with a token."""
    token = authorize(service)
    return lambda path, method="POST", **values: send(service, path, method, **{**token, **values})


def files_of(call: Call, folder_id: str = "") -> dict[str, Any]:
    return {one["filename"]: one for one in call("/folder/listing", parent_folder_id=folder_id)["data"]["files"]}


@pytest.mark.parametrize("cloudstore_emulator", ["yetishare"], indirect=True)
def test_the_fixture_takes_the_service_as_an_indirect_parameter(cloudstore_emulator: Emulator) -> None:
    assert json.loads(os.environ["AIRFLOW_CONN_CLOUDSTORE_DEFAULT"])["extra"] == {"service": "yetishare"}
    assert authorize(cloudstore_emulator)


def test_the_keys_get_a_token_that_ends_all_earlier_ones(service: Emulator) -> None:
    pair = keys_of(service)
    first, second = (send(service, "/authorize", **pair)["data"] for _ in range(2))
    assert (len(first["access_token"]), first["access_token"].isalnum()) == (128, True)
    assert send(service, "/folder/listing", **first)["response"] == REAUTHENTICATE
    assert send(service, "/folder/listing", **second)["_status"] == "success"
    assert service.state()["requests"] == {"authorize": 2, "other": 2}
    assert service.state()["effects"] == {"authorize": 2, "other": 1}
    assert send(service, "/authorize", **pair | {"key2": "x" * 64})["response"] == WRONG_KEYS


@pytest.mark.parametrize(
    ("path", "values", "sentence"),
    [
        ("/folder/listing", {"access_token": "wrong"}, REAUTHENTICATE),
        ("/folder/listing", {"parent_folder_id": "9"}, "Could not find folder based on folder_id."),
        ("/folder/delete", {"folder_id": "9"}, "Failed deleting the folder."),
        ("/file/url_upload_add", {}, "Please provide the url param."),
        ("/file/url_upload_add", {"url": "https://h/a", "folder_id": "9"}, "Could not find folder based on folder_id."),
        ("/file/download", {"file_id": "9"}, "Could not find file based on file_id."),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_error_is_http_200_with_its_sentence(call: Call, method: str, path: str, values: Any, sentence: str) -> None:
    failed = call(path, method, **values)
    assert (list(failed), failed["response"], failed["_status"]) == (["response", "_status", "_datetime"], sentence, "error")


def test_headers_json_bodies_and_the_query_of_a_post_are_not_read(service: Emulator) -> None:
    token = authorize(service)
    headers = {"Authorization": f"Bearer {token['access_token']}"}
    url = f"{service.url}/api/v2/folder/listing"
    for sent in ({"json": token}, {"params": token}):
        refused = requests.post(url, headers=headers, timeout=5, **sent).json()  # type: ignore[arg-type]
        assert refused["response"] == "Please provide the access_token param."


def test_a_deleted_folder_is_in_the_trash_with_its_files_and_no_other_is(service: Emulator, call: Call) -> None:
    mine, other = (call("/folder/create", folder_name=name)["data"]["id"] for name in ("run-1", "run-2"))
    for folder_id in (mine, other):
        service.put_file(b"x", f"of-{folder_id}", folder_id)
    for _ in range(2):
        deleted = call("/folder/delete", folder_id=mine)
        assert (deleted["response"], "data" in deleted) == ("Folder successfully set as deleted.", False)
    state = service.state()
    assert state["folders"] == [other]
    assert {one["folder_id"]: one["state"] for one in state["files"]} == {mine: "trash", other: "stored"}
    assert [one["folderName"] for one in call("/folder/listing")["data"]["folders"]] == ["run-1", "run-2"]
    (stored,) = files_of(call, mine).values()
    assert (stored["status"], stored["folderId"]) == ("trash", mine)
    link = call("/file/download", "GET", file_id=stored["id"])["data"]["download_url"]
    assert requests.get(link, timeout=5).content == b"x"


def test_an_upload_has_no_id_and_its_file_is_found_by_its_folder(service: Emulator, call: Call) -> None:
    folder_id = call("/folder/create", folder_name="run")["data"]["id"]
    answer = call("/file/url_upload_add", url=service.serve(b"four", "a.csv"), folder_id=folder_id)
    assert answer.keys() == {"response", "_status", "_datetime"}
    stored = eventually(lambda: files_of(call, folder_id).get("a.csv"))
    assert (stored["fileSize"], stored["status"], stored["folderId"]) == (4, "active", folder_id)
    link = call("/file/download", "GET", file_id=stored["id"])["data"]
    url, _, token = link["download_url"].partition("?download_token=")
    assert (link.keys(), len(token) > 40, token in url) == ({"file_id", "filename", "download_url"}, True, False)
