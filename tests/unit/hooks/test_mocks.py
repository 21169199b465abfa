"""The hook under what people test with: requests-mock, responses, and adapters of their own on ``hook.get_conn()``."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import requests_mock
import responses
import urllib3
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from airflow_provider_cloudstore import exceptions
from airflow_provider_cloudstore.hooks.cloudstore import CloudStoreHook
from airflow_provider_cloudstore.protocol.operations import CREATE_DOWNLOAD_LINK, DELETE_FOLDER, UPLOAD_FROM_URL

HOST = "https://files.example.com"
TOKEN = "s3cret-access-token"
LINK_TOKEN = "s3cret-download-token"
STORE = "https://store.example.com/f1"
URLS = {
    operation.key: (operation.method, HOST + operation.path)
    for operation in (DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK)
}
URLS["download"] = ("GET", STORE)
DATA = bytes(range(256)) * 40


@dataclass(frozen=True)
class Answer:
    """What a mock does with one request.

    :param error: raised in place of a response.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None


class Mock:
    """One way of mocking: :meth:`script` says how the requests to one of ``URLS`` are answered; the last answer is repeated."""

    @property
    def seen(self) -> list[Any]:
        """The requests, in order."""
        raise NotImplementedError

    def script(self, what: str, *answers: Answer) -> None:
        raise NotImplementedError

    def attach(self, hook: CloudStoreHook) -> None:
        """Nothing: most mocks replace parts of requests."""

    def count(self, what: str) -> int:
        method, url = URLS[what]
        return sum((one.method, str(one.url).partition("?")[0]) == (method, url) for one in self.seen)


class RequestsMock(Mock):
    def __init__(self, mocker: requests_mock.Mocker) -> None:
        self._mocker = mocker

    @property
    def seen(self) -> list[Any]:
        return list(self._mocker.request_history)

    def script(self, what: str, *answers: Answer) -> None:
        method, url = URLS[what]
        self._mocker.register_uri(method, url, [
            {"exc": one.error} if one.error else {"status_code": one.status, "content": one.body, "headers": one.headers}
            for one in answers
        ])  # fmt: skip


class Responses(Mock):
    def __init__(self, mocked: responses.RequestsMock) -> None:
        self._mocked = mocked

    @property
    def seen(self) -> list[Any]:
        return [call.request for call in self._mocked.calls]

    def script(self, what: str, *answers: Answer) -> None:
        method, url = URLS[what]
        for one in answers:
            headers = dict(one.headers)
            content_type = headers.pop("Content-Type", None)
            self._mocked.add(
                method, url, body=one.error or one.body, status=one.status, headers=headers, content_type=content_type
            )


class OwnAdapter(Mock, BaseAdapter):
    """A user's adapter.

    :param fill: puts an answer's body into a response.
    """

    def __init__(self, fill: Callable[[requests.Response, Answer], None]) -> None:
        super().__init__()
        self._fill = fill
        self._waiting: dict[tuple[str, str], list[Answer]] = {}
        self._seen: list[Any] = []

    @property
    def seen(self) -> list[Any]:
        return self._seen

    def attach(self, hook: CloudStoreHook) -> None:
        hook.get_conn().mount("https://", self)

    def script(self, what: str, *answers: Answer) -> None:
        self._waiting[URLS[what]] = list(answers)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        self._seen.append(request)
        waiting = self._waiting[str(request.method), str(request.url).partition("?")[0]]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if answer.error:
            raise answer.error
        response = requests.Response()
        response.status_code, response.headers, response.url = (
            answer.status,
            CaseInsensitiveDict(answer.headers),
            str(request.url),
        )
        self._fill(response, answer)
        return response

    def close(self) -> None:
        pass


def bytes_io(response: requests.Response, answer: Answer) -> None:
    response.raw = io.BytesIO(answer.body)


def content_only(response: requests.Response, answer: Answer) -> None:
    response._content = answer.body


def urllib3_response(response: requests.Response, answer: Answer) -> None:
    response.raw = urllib3.HTTPResponse(io.BytesIO(answer.body), answer.headers, answer.status, preload_content=False)


@pytest.fixture(
    params=["requests_mock", "responses", bytes_io, content_only, urllib3_response], ids=lambda way: getattr(way, "__name__", way)
)
def mock(request: pytest.FixtureRequest) -> Iterator[Mock]:
    if request.param == "requests_mock":
        with requests_mock.Mocker() as mocker:
            yield RequestsMock(mocker)
    elif request.param == "responses":
        with responses.RequestsMock(assert_all_requests_are_fired=False) as mocked:
            yield Responses(mocked)
    else:
        yield OwnAdapter(request.param)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def connect(monkeypatch: pytest.MonkeyPatch, token: str = TOKEN) -> None:
    connection = {"conn_type": "cloudstore", "host": HOST, "password": token, "extra": {"max_attempts": 2}}
    monkeypatch.setenv("AIRFLOW_CONN_CLOUDSTORE_DEFAULT", json.dumps(connection))


@pytest.fixture
def hook(mock: Mock, monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> Iterator[CloudStoreHook]:
    connect(monkeypatch)
    with CloudStoreHook() as hook:
        mock.attach(hook)
        yield hook


def envelope(status: int = 200, **data: Any) -> Answer:
    return Answer(status, json.dumps({"_status": "success", "data": data}).encode(), {"Content-Type": "application/json"})


LINK = envelope(download_token=LINK_TOKEN, download_url=f"{STORE}?download_token={LINK_TOKEN}")
OK = {"delete": envelope(), "upload": envelope(file_id="f9"), "link": LINK}
OPERATIONS: dict[str, Callable[[CloudStoreHook], Any]] = {
    "delete": lambda hook: hook.delete_folder("d1"),
    "upload": lambda hook: hook.upload_from_url("https://source.example.com/f?sig=hunter2"),
    "link": lambda hook: hook.create_download_link("f1"),
}


def test_a_mock_sees_each_request_as_it_is_sent_with_its_token(mock: Mock, hook: CloudStoreHook) -> None:
    for operation, answer in OK.items():
        mock.script(operation, answer)
        OPERATIONS[operation](hook)
    delete, upload, link = mock.seen
    assert (delete.body, delete.headers["Authorization"]) == ("folder_id=d1", f"Bearer {TOKEN}")
    assert upload.body == "url=https%3A%2F%2Fsource.example.com%2Ff%3Fsig%3Dhunter2"
    assert link.url == f"{URLS['link'][1]}?access_token={TOKEN}&file_id=f1"


def test_a_mocked_status_is_an_error_or_retried_after_the_pause_that_it_asks_for(
    mock: Mock, hook: CloudStoreHook, slept: list[float]
) -> None:
    mock.script("delete", Answer(404, b"no such folder"))
    with pytest.raises(exceptions.NotFoundError, match="no such folder"):
        OPERATIONS["delete"](hook)
    mock.script("upload", Answer(429, b"slow down", {"Retry-After": "7"}), OK["upload"])
    assert OPERATIONS["upload"](hook).file_id == "f9"
    assert (mock.count("delete"), mock.count("upload"), slept) == (1, 2, [7])


def test_a_mocked_exception_says_whether_an_upload_was_sent(mock: Mock, hook: CloudStoreHook) -> None:
    mock.script("upload", Answer(error=requests.ConnectTimeout()), Answer(error=requests.ReadTimeout()))
    with pytest.raises(exceptions.OutcomeUnknownError):
        OPERATIONS["upload"](hook)
    assert mock.count("upload") == 2


def test_a_mistake_in_a_mock_is_shown_as_it_is(mock: Mock, hook: CloudStoreHook) -> None:
    mock.script("upload", Answer(error=AssertionError("the wrong URL")))
    with pytest.raises(AssertionError, match="the wrong URL"):
        OPERATIONS["upload"](hook)
    assert len(mock.seen) == 1


def whole(length: int = len(DATA)) -> Answer:
    return Answer(200, DATA, {"Content-Length": str(length), "ETag": '"v1"'})


def test_a_mocked_file_is_downloaded_and_verified_without_the_access_token(
    mock: Mock, hook: CloudStoreHook, tmp_path: Path
) -> None:
    mock.script("link", LINK)
    mock.script("download", whole())
    digest = hashlib.sha256(DATA).hexdigest()
    assert hook.download("f1", tmp_path / "f", expected_sha256=digest).bytes == len(DATA)
    assert (tmp_path / "f").read_bytes() == DATA
    assert TOKEN not in str([(one.url, one.headers) for one in mock.seen if str(one.url).startswith(STORE)])


@pytest.mark.parametrize(("answer", "kind"), [
    (whole(), exceptions.ChecksumError),
    (whole(len(DATA) + 1), exceptions.TransientServiceError),
    (Answer(500), exceptions.TransientServiceError),
    (Answer(error=requests.ConnectTimeout()), exceptions.ServiceUnreachableError),
], ids=["other content", "cut off", "status", "exception"])  # fmt: skip
def test_a_mocked_download_that_fails_leaves_no_file(
    mock: Mock, hook: CloudStoreHook, tmp_path: Path, answer: Answer, kind: type[exceptions.CloudStoreError]
) -> None:
    mock.script("link", LINK)
    mock.script("download", answer)
    with pytest.raises(kind):
        hook.download("f1", tmp_path / "f", expected_sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []
