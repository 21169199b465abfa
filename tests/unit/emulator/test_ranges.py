from __future__ import annotations

from typing import Any

import pytest
import requests

from airflow_provider_cloudstore.emulator.runner import Emulator

DATA = b"0123456789"


@pytest.fixture
def url(emulator: Emulator) -> str:
    emulator.put_file(DATA, "f1")
    token = emulator.call(lambda service: service.store.create_token("f1"))
    assert token
    return f"{emulator.url}/download?download_token={token.token}"


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        (None, 200, DATA, None),
        ("bytes=0-", 206, DATA, "bytes 0-9/10"),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, DATA, "bytes 0-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=5-3", 200, DATA, None),
        ("bytes=1-2,4-5", 200, DATA, None),
        ("lines=1-2", 200, DATA, None),
    ],
)
def test_a_range_is_what_the_request_names(url: str, wanted: Any, status: int, body: bytes, content_range: Any) -> None:
    found = requests.get(url, headers={"Range": wanted} if wanted else {}, timeout=10)
    assert (found.status_code, found.content, found.headers.get("Content-Range")) == (status, body, content_range)
    assert found.headers["Content-Length"] == str(len(body))


def test_a_range_is_sent_only_of_the_version_that_if_range_names(emulator: Emulator, url: str) -> None:
    first = requests.get(url, timeout=10)
    for name in ("ETag", "Last-Modified"):
        part = requests.get(url, headers={"Range": "bytes=5-", "If-Range": first.headers[name]}, timeout=10)
        assert (part.status_code, part.content) == (206, b"56789")
    emulator.put_file(b"abcdefghij", "f1")
    whole = requests.get(url, headers={"Range": "bytes=5-", "If-Range": first.headers["ETag"]}, timeout=10)
    assert (whole.status_code, whole.content) == (200, b"abcdefghij")


def test_a_download_can_be_redirected(emulator: Emulator, url: str) -> None:
    emulator.fault("redirect", operation="download")
    found = requests.get(url, timeout=10)
    assert found.content == DATA
    assert [one.status_code for one in found.history] == [302]
    emulator.fault("redirect", operation="download", status=307, headers={"Location": f"{emulator.url}/_emulator/state"})
    assert requests.get(url, timeout=10).json()["requests"]["download"] == 3
