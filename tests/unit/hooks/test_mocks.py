"""The hook under what people test with: requests-mock, responses, and adapters of their own on ``hook.get_conn()``."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import requests_mock
import responses
from requests.adapters import BaseAdapter

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.operations import CreateDownloadLink, DeleteFolder, UploadFromUrl
from tests.support import TOKEN, connect

HOST = "https://files.example.com"
STORE = "https://store.example.com/f1"
DELETE, UPLOAD, LINK = (f"{HOST}/cloud/api/v2{one.path}" for one in (DeleteFolder, UploadFromUrl, CreateDownloadLink))
ANSWERS: list[tuple[str, str, int, bytes]] = [
    ("POST", UPLOAD, 429, b"slow down"),
    ("POST", UPLOAD, 200, b'{"data": {"file_id": "f9"}}'),
    ("GET", LINK, 200, json.dumps({"download_token": "t", "download_url": f"{STORE}?download_token=t"}).encode()),
    ("GET", STORE, 200, b"content"),
    ("POST", DELETE, 404, b'{"message": "no such folder"}'),
]
"""What each mock answers, in this order; the 429 has a Retry-After."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudStoreHook]:
    connect(monkeypatch, host=HOST, password=TOKEN)
    with CloudStoreHook() as hook:
        yield hook


def work(hook: CloudStoreHook, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the mocked service with each method of the hook, after each of which idle connections are closed."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", itertools.count(time.monotonic(), 2).__next__)
    assert hook.upload_from_url("https://source.example.com/f?sig=hunter2").file_id == "f9"
    assert slept == [7]
    assert hook.download("f1", folder / "f").bytes == 7
    assert (folder / "f").read_bytes() == b"content"
    with pytest.raises(exceptions.NotFoundError, match="no such folder"):
        hook.delete_folder("d1")


def check(requested: list[Any]) -> None:
    assert [(request.method, request.url.partition("?")[0]) for request in requested] == [answer[:2] for answer in ANSWERS]
    upload, again, link, download, delete = requested
    assert upload.body == again.body == "url=https%3A%2F%2Fsource.example.com%2Ff%3Fsig%3Dhunter2"
    assert (delete.body, delete.headers["Authorization"]) == ("folder_id=d1", f"Bearer {TOKEN}")
    assert link.url == f"{LINK}?access_token={TOKEN}&file_id=f1"
    assert TOKEN not in f"{download.url} {download.headers}"


def headers(status: int, body: bytes) -> dict[str, str]:
    return {"Content-Length": str(len(body)), **({"Retry-After": "7"} if status == 429 else {})}


def test_requests_mock_works_with_the_hook(hook: CloudStoreHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with requests_mock.Mocker() as mocker:
        given = [{"status_code": code, "content": body, "headers": headers(code, body)} for _, _, code, body in ANSWERS]
        mocker.register_uri(requests_mock.ANY, requests_mock.ANY, given)
        work(hook, tmp_path, monkeypatch)
        check(mocker.request_history)


def test_responses_works_with_the_hook(hook: CloudStoreHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with responses.RequestsMock() as mocked:
        for method, url, status, body in ANSWERS:
            mocked.add(method, url, body=body, status=status, headers=headers(status, body))
        work(hook, tmp_path, monkeypatch)
        check([call.request for call in mocked.calls])


def test_an_adapter_of_ones_own_works_with_the_hook(
    hook: CloudStoreHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[Any] = []

    class Adapter(BaseAdapter):
        def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
            _, url, status, body = ANSWERS[len(requested)]
            requested.append(request)
            response = requests.Response()
            response.status_code, response.url, response.raw = status, url, io.BytesIO(body)
            response.headers.update(headers(status, body))
            return response

        def close(self) -> None:
            pass

    hook.get_conn().mount("https://", Adapter())
    work(hook, tmp_path, monkeypatch)
    check(requested)


def test_a_mistake_in_a_mock_ends_the_call(hook: CloudStoreHook) -> None:
    with requests_mock.Mocker() as mocker:
        mocker.post(UPLOAD, exc=AssertionError("the wrong URL"))
        with pytest.raises(AssertionError):
            hook.upload_from_url("https://source.example.com/f")
        assert mocker.call_count == 1
