"""The hook under what people test with: requests-mock, responses, and adapters of their own on ``hook.get_conn()``."""

from __future__ import annotations

import gzip
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
from tests.wire.failure_table import row_for

HOST = "https://files.example.com"
TOKEN = "s3cret-access-token"
LINK_TOKEN = "s3cret-download-token"
STORE = "https://store.example.com/f1"
URLS = {
    operation.key: (operation.method, HOST + operation.path)
    for operation in (DELETE_FOLDER, UPLOAD_FROM_URL, CREATE_DOWNLOAD_LINK)
}
URLS |= {"download": ("GET", STORE), "elsewhere": ("GET", "https://elsewhere.example.com/f")}
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
PAUSED = Answer(429, b"slow down", {"Retry-After": "7"})


def zipped(answer: Answer) -> Answer:
    return Answer(answer.status, gzip.compress(answer.body), {**answer.headers, "Content-Encoding": "gzip"})


FIRST: dict[str, Answer] = {
    "401": Answer(401, b"expired"),
    "404": Answer(404, b"no such thing"),
    "3xx": Answer(302, b"", {"Location": URLS["elsewhere"][1]}),
    "429": PAUSED,
    "connect timeout": Answer(error=requests.ConnectTimeout()),
    "other 5xx": Answer(500, b"oh"),
    "read timeout": Answer(error=requests.ReadTimeout()),
    "lost connection": Answer(error=requests.ConnectionError()),
}
"""By the cause in the failure table: what the mock answers to the first request; then comes a success."""
OPERATIONS: dict[str, Callable[[CloudStoreHook], Any]] = {
    "delete": lambda hook: hook.delete_folder("d1"),
    "upload": lambda hook: hook.upload_from_url("https://source.example.com/f?sig=hunter2"),
    "link": lambda hook: hook.create_download_link("f1"),
}


def outcome(work: Callable[[], Any]) -> type[exceptions.CloudStoreError] | None:
    """The error class that callers catch, or None."""
    try:
        work()
    except exceptions.CloudStoreError as error:
        return next(kind for kind in type(error).__mro__ if kind in vars(exceptions).values())
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", FIRST)
def test_a_mock_has_the_effect_that_the_failure_table_says(mock: Mock, hook: CloudStoreHook, name: str, operation: str) -> None:
    row = row_for(name)
    mock.script(operation, FIRST[name], OK[operation])
    is_retried = row.is_retried(operation)
    ends = None if is_retried else vars(exceptions)[row.error(operation, FIRST[name].status)]
    assert outcome(lambda: OPERATIONS[operation](hook)) is ends
    assert mock.count(operation) == 1 + is_retried


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_mocked_response_may_be_compressed(mock: Mock, hook: CloudStoreHook, operation: str) -> None:
    mock.script(operation, zipped(OK[operation]))
    assert outcome(lambda: OPERATIONS[operation](hook)) is None


def test_a_mistake_in_a_mock_is_shown_as_it_is(mock: Mock, hook: CloudStoreHook) -> None:
    mock.script(UPLOAD_FROM_URL.key, Answer(error=AssertionError("the wrong URL")))
    with pytest.raises(AssertionError, match="the wrong URL"):
        hook.upload_from_url("https://example.com/f")
    assert len(mock.seen) == 1


def test_the_pause_is_the_one_that_a_mock_asks_for(mock: Mock, hook: CloudStoreHook, slept: list[float]) -> None:
    mock.script("upload", PAUSED, OK["upload"])
    assert OPERATIONS["upload"](hook).file_id == "f9"
    assert slept == [7]


# --- downloads ---


def whole(data: bytes = DATA, tag: str = '"v1"', **headers: str) -> Answer:
    return Answer(200, data, {"Content-Length": str(len(data)), "ETag": tag, **headers})


def part(start: int, end: int = len(DATA)) -> Answer:
    """The bytes from ``start`` to before ``end``."""
    headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(DATA)}", "Content-Length": str(end - start), "ETag": '"v1"'}
    return Answer(206, DATA[start:end], headers)


def broken(answer: Answer, after: int) -> Answer:
    """The answer whose body ends early."""
    return Answer(answer.status, answer.body[:after], answer.headers)


@pytest.fixture
def target(mock: Mock, tmp_path: Path) -> Path:
    mock.script("link", LINK)
    return tmp_path / "f"


def ranges(mock: Mock) -> list[str | None]:
    return [one.headers.get("Range") for one in mock.seen if str(one.url).startswith(STORE)]


def test_a_mocked_file_is_downloaded_whole_and_verified(mock: Mock, hook: CloudStoreHook, target: Path) -> None:
    mock.script("download", whole())
    digest = hashlib.sha256(DATA).hexdigest()
    assert hook.download("f1", target, expected_sha256=digest).bytes == len(DATA)
    assert target.read_bytes() == DATA
    assert TOKEN not in str([(one.url, one.headers) for one in mock.seen if str(one.url).startswith(STORE)])


def test_a_mocked_download_resumes_with_a_new_link(mock: Mock, hook: CloudStoreHook, target: Path) -> None:
    mock.script("download", broken(whole(), 1000), part(1000))
    hook.download("f1", target)
    assert target.read_bytes() == DATA
    assert (mock.count("link"), ranges(mock)) == (2, [None, "bytes=1000-"])


@pytest.mark.parametrize(("answers", "kind"), [
    ([whole(b"other")], exceptions.ChecksumError),
    ([Answer(302, b"", {"Location": "http://elsewhere.example.com/f"})], exceptions.BadRequestError),
    ([Answer(500)], exceptions.TransientServiceError),
    ([Answer(error=requests.ConnectTimeout())], exceptions.ServiceUnreachableError),
    ([broken(whole(), 5)], exceptions.TransientServiceError),
    ([zipped(Answer(200, DATA))], exceptions.InvalidResponseError),
    ([broken(whole(), 1000), part(2000)], exceptions.FileChangedError),
], ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_a_mocked_download_that_fails_leaves_no_file(
    mock: Mock, hook: CloudStoreHook, target: Path, answers: list[Answer], kind: type[exceptions.CloudStoreError]
) -> None:
    mock.script("download", *answers)
    assert outcome(lambda: hook.download("f1", target, expected_sha256="0" * 64)) is kind
    assert list(target.parent.iterdir()) == []


def test_a_mocked_file_is_read_in_ranges(mock: Mock, hook: CloudStoreHook, target: Path) -> None:
    mock.script("download", part(0, 1), part(10, 20), part(20, 30))
    reader = hook.open_file("f1")
    assert (reader.size, reader.read(10, 20), reader.read(20, 30)) == (len(DATA), DATA[10:20], DATA[20:30])
    assert ranges(mock) == ["bytes=0-0", "bytes=10-19", "bytes=20-29"]


# --- what a mock sees ---


def test_a_mock_sees_the_request_as_it_is_sent_with_its_token(mock: Mock, hook: CloudStoreHook) -> None:
    for operation, answer in OK.items():
        mock.script(operation, answer)
        OPERATIONS[operation](hook)
    delete, upload, link = mock.seen
    assert (delete.body, delete.headers["Authorization"]) == ("folder_id=d1", f"Bearer {TOKEN}")
    assert upload.body == "url=https%3A%2F%2Fsource.example.com%2Ff%3Fsig%3Dhunter2"
    assert link.url == f"{URLS['link'][1]}?access_token={TOKEN}&file_id=f1"
